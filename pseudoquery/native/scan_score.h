/* Scores by dots, eight at a time. It is included once for each instruction set.
 *
 * The relative error of the exponential is at most twice that of single precision. An estimate that
 * is not finite says that something overflowed: whoever gets one must not believe it. */
#define Floats NAME(Floats)
#define Ints NAME(Ints)

typedef float Floats __attribute__((vector_size(32), may_alias));
typedef int32_t Ints __attribute__((vector_size(32), may_alias));

#define INLINE __attribute__((always_inline)) TARGET static inline

INLINE Floats NAME(choose)(Ints which, Floats a, Floats b) {
    return (Floats)(((Ints)a & which) | ((Ints)b & ~which));
}

INLINE float NAME(largest_of)(Floats v) {
    float a = v[0] > v[4] ? v[0] : v[4], b = v[1] > v[5] ? v[1] : v[5];
    float c = v[2] > v[6] ? v[2] : v[6], d = v[3] > v[7] ? v[3] : v[7];
    a = a > b ? a : b;
    c = c > d ? c : d;
    return a > c ? a : c;
}

INLINE float NAME(sum_of)(Floats v) {
    return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]));
}

/* The exponential of numbers from -87 to 0: 2^n times a polynomial of the rest. */
INLINE Floats NAME(exponential)(Floats x) {
    const float magic = 12582912.0f; /* 1.5 * 2^23: a sum with it has no digits behind the point */
    const Floats shifted = x * 1.44269504f + magic;
    const Floats whole = shifted - magic;
    /* ln 2 in two parts, of which the first has so few digits that the product is exact. */
    const Floats rest = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    Floats sum = rest * (1.0f / 5040) + 1.0f / 720;
    sum = sum * rest + 1.0f / 120;
    sum = sum * rest + 1.0f / 24;
    sum = sum * rest + 1.0f / 6;
    sum = sum * rest + 0.5f;
    sum = sum * rest * rest + rest;
    const Ints power = ((Ints)shifted - 0x4b400000 + 127) << 23;
    return (sum + 1.0f) * (Floats)power;
}

/* Load eight dots; those behind the last one are `instead`. */
INLINE Floats NAME(load)(const float *dots, size_t left, float instead) {
    const Ints lanes = {0, 1, 2, 3, 4, 5, 6, 7};
    Floats v;
    memcpy(&v, dots, sizeof v);
    if (left >= 8) {
        return v;
    }
    return NAME(choose)((Ints)(lanes < (int32_t)left), v, (Floats){0} + instead);
}

/* Score one document by its dots: the largest, or their mean weighted by their exponentials. */
INLINE float NAME(score_document)(const float *dots, size_t count, int softmax) {
    const float infinity = __builtin_inff();
    Floats tops = (Floats){0} - infinity, doubt = {0};
    for (size_t i = 0; i < count; i += 8) {
        const Floats v = NAME(load)(dots + i, count - i, -infinity);
        const Floats finite = NAME(load)(dots + i, count - i, 0);
        tops = NAME(choose)((Ints)(v > tops), v, tops);
        doubt += finite - finite; /* not a number, if one is not finite */
    }
    const float largest = NAME(largest_of)(tops);
    if (!softmax) {
        return largest + NAME(sum_of)(doubt);
    }
    Floats weights = {0}, weighted = {0};
    for (size_t i = 0; i < count; i += 8) {
        const Floats lack = NAME(load)(dots + i, count - i, -infinity) - largest;
        /* A weight below 1e-37 is none. */
        const Ints counts = (Ints)(lack > -87.0f);
        const Floats some = NAME(choose)(counts, lack, (Floats){0});
        const Floats weight = NAME(choose)(counts, NAME(exponential)(some), (Floats){0});
        weights += weight;
        weighted += weight * some;
    }
    return largest + NAME(sum_of)(weighted) / NAME(sum_of)(weights) + NAME(sum_of)(doubt);
}

TARGET static void NAME(score)(const ScanJob *job, size_t first, size_t last, const float *dots,
                               float *estimates) {
    for (size_t i = first; i < last; i++) {
        const size_t count = (size_t)job->counts[i];
        if (!count) {
            continue;
        }
        estimates[job->positions[i]] = NAME(score_document)(dots, count, job->softmax);
        dots += count;
    }
}

#undef INLINE
#undef Floats
#undef Ints
#undef NAME
#undef TARGET
