"""What the messages of the volume cases look like; the Node.js and Java programs make the same ones."""

MIB = 1 << 20

# Every body is a slice of this block, so that a wrong byte anywhere is seen.
BLOCK = bytes((i * 131 + (i >> 8) * 17) & 255 for i in range(MIB + 1009))


def size_of(seq, full):
    """0 B to 1 MiB. The full form has a hundred times as many large ones."""
    step = 1 if full else 10
    if seq % (100 * step) == 50:
        return MIB
    if seq % (20 * step) == 1:
        return 65536 + seq
    if seq % 10 == 2:
        return 20000
    if seq % 10 == 3:
        return 0
    return seq * 37 % 2048


def body_of(seq, size):
    return BLOCK[seq % 1009:seq % 1009 + size]


def outcome_of(seq):
    """What the consumer of a volume case does with a message when it first sees it."""
    return {3: "rejected", 7: "released", 11: "failed", 13: "undeliverable"}.get(seq % 20, "accepted")
