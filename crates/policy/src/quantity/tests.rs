use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn check(text: &str, bytes: u64) {
    assert_eq!(parse(text), Ok(bytes), "{text}");
}

#[test]
fn reads_binary_suffixes() {
    check("64Ki", 65_536);
    check("200Mi", 200 * MIB);
    check("24Gi", 24 * GIB);
    check("2Ti", 2 << 40);
    check("3Pi", 3 << 50);
    check("7Ei", 7 << 60);
}

#[test]
fn reads_decimal_suffixes_and_plain_numbers() {
    check("0", 0);
    check("0042", 42);
    check("1k", 1_000);
    check("1M", 1_000_000);
    check("10G", 10_000_000_000);
    check("1T", 1_000_000_000_000);
    check("1P", 1_000_000_000_000_000);
    check("1E", 1_000_000_000_000_000_000);
}

#[test]
fn reads_fractions_exactly() {
    check("1.5Gi", GIB + GIB / 2);
    check("0.1Gi", 107_374_183);
    check(".5Mi", MIB / 2);
    check("5.", 5);
    check("1.50000000000000000000000000000000000000000k", 1_500);
    check("7.999999999999999999Ei", i64::MAX.unsigned_abs());
}

#[test]
fn reads_exponents() {
    check("1e9", 1_000_000_000);
    check("1E3", 1_000);
    check("1.5e3", 1_500);
    check("2e+2", 200);
    check("25e-1", 3);
    check("1e-2147483648", 1);
    check("0e2147483647", 0);
}

#[test]
fn rounds_parts_of_a_byte_up() {
    check("1500m", 2);
    check("1m", 1);
    check("1u", 1);
    check("1n", 1);
    check("0m", 0);
    check("2000m", 2);
    check("0.000000000000000001", 1);
}

#[test]
fn refuses_what_is_no_size() {
    let texts = [
        "",
        "abc",
        "-1",
        "+1",
        " 1",
        "1 ",
        "1Gi ",
        "1Gi\n",
        "1 Gi",
        ".",
        "Gi",
        "1..5",
        "1.5.2Gi",
        "1gi",
        "1KI",
        "1K",
        "1Gb",
        "1GiB",
        "1B",
        "1e",
        "1e+",
        "1e1.5",
        "1e--1",
        "1eGi",
        "0x10",
        "1_000",
        "1,5Gi",
        "١Gi",
        "1e2147483648",
        "NaN",
        "inf",
    ];
    for text in texts {
        assert!(
            matches!(parse(text), Err(QuantityError::ReadNumber { .. })),
            "{text:?}: {:?}",
            parse(text)
        );
    }
}

#[test]
fn refuses_what_cannot_be_held() {
    check("9223372036854775807", i64::MAX.unsigned_abs());
    let texts = [
        "9223372036854775808",
        "8Ei",
        "10E",
        "1e19",
        "1e2147483647",
        "99999999999999999999999999999999Gi",
        "340282366920938463463374607431768211456",
    ];
    for text in texts {
        assert!(
            matches!(parse(text), Err(QuantityError::FitBytes { .. })),
            "{text:?}: {:?}",
            parse(text)
        );
    }
    // The last is 10^12 bytes, written in a way that is not counted.
    for text in ["0.0000000000000000001", "1000000000000000000000n", "1000000000000000000000e-9"] {
        assert!(matches!(parse(text), Err(QuantityError::KeepDigits { .. })), "{text:?}");
    }
}

#[test]
fn the_error_says_what_is_accepted() {
    let message = parse("1GiB").unwrap_err().to_string();
    assert!(message.starts_with("\"1GiB\" is not a size; accepted is a number"), "{message}");
}

#[test]
fn formats_with_the_largest_suffix_that_is_exact() {
    let check = |bytes, text: &str| assert_eq!(format(bytes), text);
    check(0, "0");
    check(1_000, "1000");
    check(65_536, "64Ki");
    check(200 * MIB, "200Mi");
    check(GIB + GIB / 2, "1536Mi");
    check(GIB + 1, "1073741825");
}

proptest! {
    #[test]
    fn text_round_trips(bytes in 0..=MAX_BYTES, zeros in 0_u32..63) {
        let even = bytes >> zeros << zeros;
        prop_assert_eq!(parse(&format(bytes)), Ok(bytes));
        prop_assert_eq!(parse(&format(even)), Ok(even));
    }

    #[test]
    fn thousandths_of_a_suffix_are_rounded_up(number in 0_u64..1_000_000, power in 1_u32..5) {
        let suffix = BINARY[6 - power as usize].0;
        let text = format!("{}.{:03}{suffix}", number / 1_000, number % 1_000);
        let exact = (u128::from(number) << (10 * power)).div_ceil(1_000);
        prop_assert_eq!(parse(&text).map(u128::from), Ok(exact));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*", near in "[0-9]{0,40}[.]?[0-9]{0,40}[eE+kKMGTPimnu-]{0,3}[0-9]{0,12}") {
        let _ = (parse(&text), parse(&near));
    }
}
