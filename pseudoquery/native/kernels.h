/* What the parts of the extension share: which instructions a kernel uses, and the jobs it does. */
#ifndef PSEUDOQUERY_KERNELS_H
#define PSEUDOQUERY_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) && defined(__x86_64__)
#define HAS_AVX 1
#endif
#if defined(__GNUC__) && defined(__aarch64__) && !defined(__AARCH64EB__)
#define HAS_NEON 1
#endif

/* MaxSim over sign codes: see signs.c. */
enum { QUESTION_GROUP = 4 };

typedef struct {
    const int8_t *question; /* (question_tokens, dim), each from -31 to 31 */
    size_t question_tokens;
    size_t dim;
    const uint8_t *codes;
    const int64_t *starts; /* (documents,): bytes into the codes */
    const int64_t *counts; /* (documents,): tokens */
    size_t documents;
    int32_t *best; /* (documents, question_tokens) */
} SignsJob;

typedef struct {
    size_t columns;  /* bytes of a token's code */
    uint8_t *tables; /* (question groups, columns, QUESTION_GROUP, 2, 16) */
    int32_t *sums;   /* (question groups * QUESTION_GROUP,): the sum of all |q_i| of a token */
    uint8_t *work;   /* columns * SIGNS_WORK bytes */
} SignsTables;

enum { SIGNS_WORK = 256 };

typedef void SignsKernel(const SignsJob *, const SignsTables *);

SignsKernel signs_portable;
#ifdef HAS_AVX
SignsKernel signs_avx2;
SignsKernel signs_avx512;
#endif
#ifdef HAS_NEON
SignsKernel signs_neon;
#endif

size_t signs_groups(const SignsJob *job);
void signs_fill_tables(const SignsJob *job, const SignsTables *tables);

/* Scores of documents, estimated from vectors in 8 bits: see scan.c. */
typedef struct {
    const int16_t *queries;    /* (query_count, dim) */
    const float *query_scales; /* (query_count,) */
    size_t query_count;
    size_t dim;
    const int8_t *codes;      /* (vectors, dim) */
    const float *code_scales; /* (vectors,) */
    const int64_t *starts;    /* (documents,): the first vector */
    const int64_t *counts;    /* (documents,): how many vectors; a document of none is left out */
    const int64_t *positions; /* (documents,): where the estimate goes in a row */
    size_t documents;
    int softmax;
    float *estimates; /* (query_count, stride) */
    size_t stride;
} ScanJob;

/* How many rows and queries are multiplied at once, and the multiple that dims are filled up to. */
enum { ROW_TILE = 4, QUERY_TILE = 2, DIM_TILE = 64 };

typedef struct {
    size_t width;         /* dim, filled up */
    size_t capacity;      /* rows that a block may have */
    int16_t *queries;     /* (query_count filled up, width) */
    int8_t *high;         /* the same, as 256 * high + low */
    uint8_t *low;
    uint32_t *corrections; /* (query_count filled up,) */
    float *scaled;         /* the same: the query's scales */
    const int8_t **rows;   /* (capacity,): the vectors of a block of documents */
    float *scales;         /* (capacity,) */
    float *dots;           /* (QUERY_TILE, capacity) */
} ScanWork;

typedef void ScanKernel(const ScanJob *, const ScanWork *);

ScanKernel scan_portable;
#ifdef HAS_AVX
ScanKernel scan_avx2;
ScanKernel scan_avx512;
#endif
#ifdef HAS_NEON
ScanKernel scan_neon;
#endif

size_t scan_queries(const ScanJob *job);
size_t scan_width(const ScanJob *job);
size_t scan_capacity(const ScanJob *job);
/* 128 times this is still below 2^31: so no sum of products overflows. */
enum { SCAN_LARGEST_SUM = (1 << 24) - 1 };
int scan_sums_fit(const ScanJob *job);
/* Return the first document that is not within the vectors and the columns, if any. */
size_t scan_first_outside(const ScanJob *job, int64_t vectors);
void scan_fill_queries(const ScanJob *job, const ScanWork *work);

#endif
