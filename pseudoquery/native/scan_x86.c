/* The scan of scan.c by AVX2, and by AVX-512 with VNNI. */
#include "scan.h"

#ifdef HAS_AVX
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))
#define NAME(name) name##_avx2
#define TARGET AVX2
#include "scan_score.h"

#define AVX512 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512vnni")))
#define NAME(name) name##_avx512
#define TARGET AVX512
#include "scan_score.h"

#define INLINE __attribute__((always_inline)) static inline

/* Each of the four sums belongs to a row. */
AVX2 INLINE void store(const ScanWork *work, size_t row, size_t query, size_t j, __m128i sums) {
    const __m128 dots = _mm_mul_ps(_mm_cvtepi32_ps(sums), _mm_set1_ps(work->scaled[query + j]));
    const __m128 scales = _mm_loadu_ps(work->scales + row);
    _mm_storeu_ps(work->dots + j * work->capacity + row, _mm_mul_ps(dots, scales));
}

AVX2 INLINE __m128i sums_avx2(const __m256i *products) {
    const __m256i ab = _mm256_hadd_epi32(products[0], products[1]);
    const __m256i cd = _mm256_hadd_epi32(products[2], products[3]);
    const __m256i all = _mm256_hadd_epi32(ab, cd);
    return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

/* Add the products of 16 numbers of four rows with those of one query, or of two. */
AVX2 INLINE void add_products_avx2(__m256i sums[QUERY_TILE][ROW_TILE], const int8_t *const *rows,
                                   const int16_t *query, size_t width, size_t at, int both) {
    const __m256i first = _mm256_loadu_si256((const __m256i *)query);
    const __m256i second = _mm256_loadu_si256((const __m256i *)(query + (both ? width : 0)));
#pragma GCC unroll 4
    for (int r = 0; r < ROW_TILE; r++) {
        const __m256i row = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(rows[r] + at)));
        sums[0][r] = _mm256_add_epi32(sums[0][r], _mm256_madd_epi16(row, first));
        if (both) {
            sums[1][r] = _mm256_add_epi32(sums[1][r], _mm256_madd_epi16(row, second));
        }
    }
}

AVX2 INLINE void multiply_tile_avx2(const ScanJob *job, const ScanWork *work, size_t rows,
                                    size_t query, int both) {
    const int16_t *queries = work->queries + query * work->width;
    const size_t whole = job->dim / 16 * 16;
    for (size_t row = 0; row < rows; row += ROW_TILE) {
        fetch_ahead(job, work, row, query);
        __m256i sums[QUERY_TILE][ROW_TILE] = {{{0}}};
        for (size_t i = 0; i < whole; i += 16) {
            add_products_avx2(sums, work->rows + row, queries + i, work->width, i, both);
        }
        if (whole < job->dim) {
            /* Nothing is read behind a row, which may be the last one of a mapped file. */
            int8_t ends[ROW_TILE][16] = {{0}};
            const int8_t *from[ROW_TILE] = {ends[0], ends[1], ends[2], ends[3]};
            for (size_t r = 0; r < ROW_TILE; r++) {
                memcpy(ends[r], work->rows[row + r] + whole, job->dim - whole);
            }
            add_products_avx2(sums, from, queries + whole, work->width, 0, both);
        }
        store(work, row, query, 0, sums_avx2(sums[0]));
        if (both) {
            store(work, row, query, 1, sums_avx2(sums[1]));
        }
    }
}

AVX2 static void multiply_avx2(const ScanJob *job, const ScanWork *work, size_t rows,
                               size_t query) {
    if (query + 1 < job->query_count) {
        multiply_tile_avx2(job, work, rows, query, 1);
    } else {
        multiply_tile_avx2(job, work, rows, query, 0);
    }
}

void scan_avx2(const ScanJob *job, const ScanWork *work) {
    scan_blocks(job, work, multiply_avx2, score_avx2);
}

/* Join the sums of a query's high and low bytes. */
AVX512 INLINE __m128i sums_avx512(const __m512i *high, const __m512i *low, uint32_t correction) {
    const __m512i a = _mm512_add_epi32(_mm512_slli_epi32(high[0], 8), low[0]);
    const __m512i b = _mm512_add_epi32(_mm512_slli_epi32(high[1], 8), low[1]);
    const __m512i c = _mm512_add_epi32(_mm512_slli_epi32(high[2], 8), low[2]);
    const __m512i d = _mm512_add_epi32(_mm512_slli_epi32(high[3], 8), low[3]);
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    const __m512i all =
        _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    const __m256i half =
        _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    const __m128i sums =
        _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    return _mm_sub_epi32(sums, _mm_set1_epi32((int32_t)correction));
}

/* VNNI multiplies numbers without signs by numbers with signs: the low bytes of a query by a row,
 * and a row, to which 128 is added, by the high bytes. */
AVX512 INLINE void multiply_tile_avx512(const ScanJob *job, const ScanWork *work, size_t rows,
                                        size_t query, int both) {
    const __m512i signs = _mm512_set1_epi8((char)0x80);
    const int8_t *high_bytes = work->high + query * work->width;
    const uint8_t *low_bytes = work->low + query * work->width;
    for (size_t row = 0; row < rows; row += ROW_TILE) {
        fetch_ahead(job, work, row, query);
        __m512i high[QUERY_TILE][ROW_TILE] = {{{0}}}, low[QUERY_TILE][ROW_TILE] = {{{0}}};
        for (size_t i = 0; i < job->dim; i += 64) {
            const size_t left = job->dim - i;
            const __mmask64 mask = left < 64 ? ((__mmask64)1 << left) - 1 : ~(__mmask64)0;
            const size_t second = i + (both ? work->width : 0);
            const __m512i high0 = _mm512_loadu_si512(high_bytes + i);
            const __m512i low0 = _mm512_loadu_si512(low_bytes + i);
            const __m512i high1 = _mm512_loadu_si512(high_bytes + second);
            const __m512i low1 = _mm512_loadu_si512(low_bytes + second);
#pragma GCC unroll 4
            for (int r = 0; r < ROW_TILE; r++) {
                const __m512i code = _mm512_maskz_loadu_epi8(mask, work->rows[row + r] + i);
                const __m512i unsigned_code = _mm512_xor_si512(code, signs);
                high[0][r] = _mm512_dpbusd_epi32(high[0][r], unsigned_code, high0);
                low[0][r] = _mm512_dpbusd_epi32(low[0][r], low0, code);
                if (both) {
                    high[1][r] = _mm512_dpbusd_epi32(high[1][r], unsigned_code, high1);
                    low[1][r] = _mm512_dpbusd_epi32(low[1][r], low1, code);
                }
            }
        }
        store(work, row, query, 0, sums_avx512(high[0], low[0], work->corrections[query]));
        if (both) {
            store(work, row, query, 1, sums_avx512(high[1], low[1], work->corrections[query + 1]));
        }
    }
}

AVX512 static void multiply_avx512(const ScanJob *job, const ScanWork *work, size_t rows,
                                   size_t query) {
    if (query + 1 < job->query_count) {
        multiply_tile_avx512(job, work, rows, query, 1);
    } else {
        multiply_tile_avx512(job, work, rows, query, 0);
    }
}

void scan_avx512(const ScanJob *job, const ScanWork *work) {
    scan_blocks(job, work, multiply_avx512, score_avx512);
}
#endif
