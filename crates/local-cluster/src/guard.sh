# Ends the process groups of a local cluster when its owner is gone.
#
# Standard input is a pipe whose other end only the owner holds: end of file means that the owner ended, however it
# ended. Until then each line says what there is to end: "add GROUP", "forget GROUP".
# $1: how long a group may take to end before it is killed, in tenths of a second. $2: a directory to remove, or "".

trap '' HUP INT TERM # Ctrl-C is the owner's business; its end reaches us through the pipe.

groups=
while read -r verb group; do
    case $verb in
    add) groups="$groups $group" ;;
    forget)
        kept=
        for each in $groups; do
            [ "$each" = "$group" ] || kept="$kept $each"
        done
        groups=$kept
        ;;
    esac
done

signal_all() {
    for each in $groups; do
        kill -s "$1" -- "-$each" 2>/dev/null
    done
}

# A zombie has ended; it only waits for a parent to take note, which may be busy waiting for us.
has_ended() {
    kill -0 "$1" 2>/dev/null || return 0
    stat=
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null
    case ${stat##*") "} in
    Z* | X*) return 0 ;;
    esac
    return 1
}

have_all_ended() {
    for each in $groups; do
        has_ended "$each" || return 1
    done
}

wait_for_all() {
    tenths=$1
    while [ "$tenths" -gt 0 ] && ! have_all_ended; do
        sleep 0.1
        tenths=$((tenths - 1))
    done
}

signal_all TERM
wait_for_all "$1"
signal_all KILL # Also what a leader left behind in its group.
wait_for_all 50
[ -z "$2" ] || rm -rf -- "$2"
