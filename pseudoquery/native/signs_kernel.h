/* The kernel of signs.c for vectors of LANES bytes. It is included once for each instruction set,
 * which says how to look up LANES bytes at once. */
#define Bytes NAME(Bytes)
#define Halves NAME(Halves)
#define Words NAME(Words)

typedef uint8_t Bytes __attribute__((vector_size(LANES)));
typedef uint16_t Halves __attribute__((vector_size(LANES)));
typedef uint32_t Words __attribute__((vector_size(LANES)));

TARGET static inline Words NAME(larger)(Words a, Words b) {
    const Words which = (Words)(a > b);
    return (a & which) | (b & ~which);
}

/* Add sums of 16 bits, those of even tokens and those of odd ones, to totals of 32 bits. */
TARGET static inline void NAME(widen)(Words *totals, Halves all, Halves odd) {
    /* A byte at an odd place counts 256 times in `all`, which may have overflowed: so be it. */
    const Words even = (Words)(all - (odd << 8)), rest = (Words)odd;
    totals[0] += even & 0xffff;
    totals[1] += even >> 16;
    totals[2] += rest & 0xffff;
    totals[3] += rest >> 16;
}

#define LOOK_UP(j)                                                                      \
    do {                                                                                \
        const Halves sum = (Halves)(SHUFFLE(table + 32 * (j), low) +                    \
                                    SHUFFLE(table + 32 * (j) + 16, high));              \
        all##j += sum;                                                                  \
        odd##j += sum >> 8;                                                             \
    } while (0)

/* Find the largest agreements of a group of question tokens with at least LANES tokens. */
TARGET static void NAME(document)(const uint8_t *tables, size_t columns, const uint8_t *codes,
                                  size_t tokens, uint32_t *most) {
    Words largest[QUESTION_GROUP];
    memset(largest, 0, sizeof largest);
    for (size_t at = 0;;) {
        Words totals[QUESTION_GROUP][4];
        memset(totals, 0, sizeof totals);
        for (size_t chunk = 0; chunk < columns; chunk += CHUNK) {
            const size_t end = chunk + CHUNK < columns ? chunk + CHUNK : columns;
            Halves all0 = {0}, all1 = {0}, all2 = {0}, all3 = {0};
            Halves odd0 = {0}, odd1 = {0}, odd2 = {0}, odd3 = {0};
            for (size_t column = chunk; column < end; column++) {
                const uint8_t *table = tables + column * GROUP_TABLES;
                Bytes code;
                memcpy(&code, codes + column * tokens + at, LANES);
                const Bytes low = code & 15, high = (Bytes)((Halves)code >> 4) & 15;
                LOOK_UP(0);
                LOOK_UP(1);
                LOOK_UP(2);
                LOOK_UP(3);
            }
            NAME(widen)(totals[0], all0, odd0);
            NAME(widen)(totals[1], all1, odd1);
            NAME(widen)(totals[2], all2, odd2);
            NAME(widen)(totals[3], all3, odd3);
        }
        for (size_t j = 0; j < QUESTION_GROUP; j++) {
            const Words pair = NAME(larger)(totals[j][0], totals[j][1]);
            const Words other = NAME(larger)(totals[j][2], totals[j][3]);
            largest[j] = NAME(larger)(largest[j], NAME(larger)(pair, other));
        }
        if (at + LANES >= tokens) {
            break;
        }
        /* The last tokens are read together with some before them: the largest stays the same. */
        at = at + 2 * LANES <= tokens ? at + LANES : tokens - LANES;
    }
    for (size_t j = 0; j < QUESTION_GROUP; j++) {
        for (size_t lane = 0; lane < LANES / 4; lane++) {
            most[j] = largest[j][lane] > most[j] ? largest[j][lane] : most[j];
        }
    }
}

TARGET void NAME(signs)(const SignsJob *job, const SignsTables *tables) {
    for (size_t document = 0; document < job->documents; document++) {
        const uint8_t *codes = job->codes + job->starts[document];
        size_t tokens = (size_t)job->counts[document];
        if (tokens && tokens < LANES) {
            /* A short document is filled up with its last token. */
            for (size_t column = 0; column < tables->columns; column++) {
                uint8_t *padded = tables->work + column * LANES;
                memcpy(padded, codes + column * tokens, tokens);
                memset(padded + tokens, padded[tokens - 1], LANES - tokens);
            }
            codes = tables->work;
            tokens = LANES;
        }
        for (size_t group = 0; group < signs_groups(job); group++) {
            uint32_t most[QUESTION_GROUP] = {0};
            if (tokens) {
                NAME(document)(tables->tables + group * tables->columns * GROUP_TABLES,
                               tables->columns, codes, tokens, most);
            }
            store(job, tables, document, group, most);
        }
    }
}

#undef LOOK_UP
#undef Bytes
#undef Halves
#undef Words
#undef LANES
#undef NAME
#undef TARGET
#undef SHUFFLE
