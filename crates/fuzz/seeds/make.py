#!/usr/bin/env python3
"""Writes the seeds beside it, but for those that a fuzzer found. Run again it writes the same."""

import gzip
import hashlib
import lzma
import os
import struct
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))


def write(target, name, data):
    folder = os.path.join(HERE, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)


def texts(target, seeds):
    for name, text in seeds.items():
        write(target, name, text)


CLUSTER = 512


def cluster(data=b"", fill=b"\0"):
    return data + fill * (-len(data) % CLUSTER)


def qcow2(version=3, entries=(), data=b"", size=3 * CLUSTER, **header):
    """Clusters of 512 bytes: the header, the first-level table, the refcount table, one second-level table, the data."""
    fields = {"backing": 0, "features": 0, "l1_entries": 1, "l1": 512, "l2": 3 * 512, "refcounts": 2 * 512, "bits": 9}
    fields.update(header)
    head = struct.pack(
        ">4sIQIIQIIQQIIQ", b"QFI\xfb", version, fields["backing"], 0, fields["bits"], size, 0,
        fields["l1_entries"], fields["l1"], fields["refcounts"], 1, 0, 0)
    if version == 3:
        head += struct.pack(">QQQII", fields["features"], 0, 0, 4, 104)
    l1 = struct.pack(">Q", fields["l2"])
    l2 = b"".join(struct.pack(">Q", entry) for entry in entries)
    return cluster(head) + cluster(l1) + cluster() + cluster(l2) + data


def images():
    one, two = cluster(b"one", b"1"), cluster(b"two", b"2")
    copied, packed_mark = 1 << 63, 1 << 62
    deflate = zlib.compressobj(9, zlib.DEFLATED, -12)
    packed = deflate.compress(two) + deflate.flush()
    # Of 62 bits the lowest 61 are the offset; no sector follows the first.
    mapped = (copied | 2048, 1, copied | 2560)
    write("image", "plain", qcow2(entries=mapped, data=one + two))
    write("image", "version-2", qcow2(version=2, entries=(copied | 2048, 0, copied | 2560), data=one + two))
    write("image", "compressed", qcow2(entries=(copied | 2048, packed_mark | 2560), data=one + cluster(packed)))
    write("image", "cut-short", qcow2(entries=(copied | 2048,), data=one[:100]))
    write("image", "table-in-itself", qcow2(entries=(copied | 3 * 512,), data=one))
    write("image", "behind-the-end", qcow2(entries=(copied | 1 << 40,), data=one))
    write("image", "backing-file", qcow2(entries=mapped, data=one + two, backing=104))
    write("image", "large", qcow2(size=1 << 60, l1_entries=1 << 22))
    write("image", "raw", one + cluster() * 8 + two)
    write("image", "packed-raw", gzip.compress(one + cluster() * 8 + two, mtime=0))
    write("image", "packed-qcow2", lzma.compress(qcow2(entries=mapped, data=one + two), preset=1))
    write("image", "page", "<!doctype html>")
    write("unpack", "gzip", gzip.compress(b"a disk" * 100, mtime=0))
    write("unpack", "gzip-of-two", gzip.compress(b"first", mtime=0) + gzip.compress(b"second", mtime=0))
    write("unpack", "gzip-bomb", gzip.compress(bytes(8 << 20), mtime=0))
    write("unpack", "xz", lzma.compress(b"a disk" * 100, preset=1))
    # A frame that is stored, as zstd writes it: magic, descriptor, size, one raw block that is the last.
    block = b"a disk"
    write("unpack", "zstd", b"\x28\xb5\x2f\xfd\x20" + bytes([len(block)]) + struct.pack("<I", len(block) << 3 | 1)[:3] + block)
    write("unpack", "zstd-skipped", b"\x50\x2a\x4d\x18\x02\0\0\0no")


texts("quantity", {
    "binary": "200Mi", "fraction": "1.5Gi", "decimal": "10G", "exponent": "1e9", "small": "1500m", "nano": "1n",
    "largest": "9223372036854775807", "too-large": "9223372036854775808", "odd": "00.000000000000000001Ei", "minus": "1e-30",
})
texts("duration", {
    "minutes": "5m", "mixed": "2h30m", "days": "7d", "all": "1d2h3m4s", "zero": "0s", "order": "30m2h", "fraction": "1.5h",
    "largest": "18446744073709551615s",
})
texts("policy", {
    "all": "concurrency=2\nretryLimit=5\nretryBackoffDuration=1m\nretryBackoffMax=2h\nworkspaceConcurrency=1\n"
           "provisioningTimeout=20m\nconcurrencyPerHost=2\nbandwidthLimit=8Mi\nattemptTimeout=1d\nstallTimeout=5m\n"
           "bindTimeout=5m\nsnapshotConcurrency=3\nsnapshotTimeout=10m\nmaxImageSize=50Gi\n"
           "allowedSourceHosts=https://*.example,http://10.0.0.1:8080\nimportEngine=cdi\npruneUnusedAfter=7d\n"
           "defaultStorageClass=fast\ndefaultSnapshotClass=snap\nscratchStorageClass=a.b\n",
    "bad-over-good": "concurrency=-1\nretryLimit=21\nbandwidthLimit=1\nallowedSourceHosts=ftp://x\nimportEngine=pods\n"
                     "---\nconcurrency=7\nretryLimit=3\nbandwidthLimit=1Gi\nallowedSourceHosts=h\n",
    "typo": "concurency=3\nConcurrency=4\n\\n=\n",
    "empty": "",
})
texts("source_hosts", {
    "any": "*\n169.254.169.254\nhttp://images.example/a\n",
    "listed": "http://127.0.0.1,images.example:8443\n127.0.0.1\nhttp://127.1/a\n",
    "glob": "https://*.example\n10.0.0.1\nhttps://a.example/b\n",
    "mapped": "*\n::ffff:127.0.0.1\nhttps://h/\n",
    "nat64": "*\n64:ff9b::a9fe:a9fe\nhttps://h/\n",
    "local-nat64": "*\n64:ff9b:1:a9fe:a9:fe00::\nhttps://h/\n",
    "octal": "*\n1.1.1.1\nhttp://0251.0376.0251.0376/\n",
    "decimal": "*\n1.1.1.1\nhttp://2852039166/\n",
    "brackets": "[::1]\n::1\nhttps://[0:0::1]/\n",
})
REPORT = ('{"outcome":"%s",%s"message":"m","downloadStarted":true,"bytes":4096,"source":{"size":4096,"etag":"\\"v1\\"",'
          '"acceptsRanges":true,"format":"qcow2","virtualSize":3145728},"checksum":"sha256:c","diskChecksum":"sha256:d"%s}')
texts("report", {
    "complete": REPORT % ("Complete", "", ""),
    "failed": REPORT % ("Failed", '"reason":"Throttled",', ',"retryAfterSeconds":60'),
    "terminal": REPORT % ("Failed", '"reason":"ChecksumMismatch",', ""),
    "least": '{"outcome":"Complete"}',
    "cut": REPORT[:100],
    "progress": '{"phase":"Fetching","bytes":1,"totalBytes":2,"received":1,"percent":50}',
})
texts("answer", {
    "part": "206\ncontent-range: bytes 5-9/10\netag: \"v1\"\n\nbytes",
    "whole": "200\ncontent-length: 10\ncontent-type: text/html\n\n",
    "beyond": "416\ncontent-range: bytes */10\n\n",
    "throttled": "503\nretry-after: Sun, 06 Nov 2094 08:49:37 GMT\n\n",
    "denied": "403\n\n<?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code><Message>canary</Message></Error>",
    "elsewhere": "301\nx-amz-bucket-region: eu-west-1\n\n<Error><Code>PermanentRedirect</Code><Region>canary</Region></Error>",
})
images()
# Choices have no text of their own: any bytes are a cluster and what happens in it.
for name in ("one", "two", "three", "four", "five", "six", "seven", "eight"):
    write("decide", name, b"".join(hashlib.sha256(f"{name} {at}".encode()).digest() for at in range(16)))
for name in ("one", "two", "three", "four", "five", "six", "seven", "eight"):
    write("workspace", name, b"".join(hashlib.sha256(f"workspace {name} {at}".encode()).digest() for at in range(24)))
