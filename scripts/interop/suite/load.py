"""What the messages of the volume cases look like; the Node.js and Java programs make the same ones."""

MIB = 1 << 20

# Every body is a slice of this block, so that a wrong byte anywhere is seen.
BLOCK = bytes((i * 131 + (i >> 8) * 17) & 255 for i in range(MIB + 1009))


def size_of(seq):
    """0 B to 1 MiB: a hundred of 1 MiB among 10,000, and each step below more often."""
    if seq % 100 == 50:
        return MIB
    if seq % 20 == 1:
        return 65536 + seq
    if seq % 10 == 2:
        return 20000
    if seq % 10 == 3:
        return 0
    return seq * 37 % 2048


def outcome_of(seq):
    """What the consumer of a volume case does with a message when it first sees it."""
    return {3: "rejected", 7: "released", 11: "failed", 13: "undeliverable"}.get(seq % 20, "accepted")
