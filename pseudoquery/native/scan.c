/* The scores of documents, estimated from vectors in 8 bits in one pass over them.
 *
 * A query's numbers are integers of 16 bits. Whoever made them has seen to it that no sum of products
 * with numbers of 8 bits exceeds 32 bits, so every dot product is exact. It is then multiplied by two
 * scales, and the dots of a document's vectors become its score, in single precision.
 */
#include "scan.h"

size_t scan_queries(const ScanJob *job) {
    return (job->query_count + QUERY_TILE - 1) / QUERY_TILE * QUERY_TILE;
}

size_t scan_width(const ScanJob *job) { return (job->dim + DIM_TILE - 1) / DIM_TILE * DIM_TILE; }

int scan_sums_fit(const ScanJob *job) {
    for (size_t query = 0; query < job->query_count; query++) {
        int64_t sum = 0;
        for (size_t i = 0; i < job->dim; i++) {
            const int value = job->queries[query * job->dim + i];
            sum += value < 0 ? -value : value;
        }
        if (sum > SCAN_LARGEST_SUM) {
            return 0;
        }
    }
    return 1;
}

size_t scan_first_outside(const ScanJob *job, int64_t vectors) {
    size_t i = 0;
    for (; i < job->documents; i++) {
        const int64_t start = job->starts[i], count = job->counts[i], position = job->positions[i];
        if (start < 0 || count < 0 || start > vectors || count > vectors - start || position < 0 ||
            position >= (int64_t)job->stride) {
            break;
        }
    }
    return i;
}

size_t scan_capacity(const ScanJob *job) {
    size_t widest = 1;
    for (size_t i = 0; i < job->documents; i++) {
        widest = (size_t)job->counts[i] > widest ? (size_t)job->counts[i] : widest;
    }
    return (BLOCK + widest + SLACK) / SLACK * SLACK;
}

/* Lay out the queries for all instruction sets. The memory is zero, and stays so behind them. */
void scan_fill_queries(const ScanJob *job, const ScanWork *work) {
    for (size_t query = 0; query < job->query_count; query++) {
        work->scaled[query] = job->query_scales[query];
        for (size_t i = 0; i < job->dim; i++) {
            const int value = job->queries[query * job->dim + i];
            const size_t at = query * work->width + i;
            const int low = value & 255, high = (value - low) / 256;
            work->queries[at] = (int16_t)value;
            work->low[at] = (uint8_t)low;
            work->high[at] = (int8_t)high;
            /* What is too much where `high` is multiplied with numbers that are 128 too large. */
            work->corrections[query] += (uint32_t)high * 256u * 128u;
        }
    }
}

#pragma GCC diagnostic ignored "-Wpsabi" /* what is passed a vector is inlined */
#define NAME(name) name##_portable
#define TARGET
#include "scan_score.h"

#ifndef __clang__
__attribute__((optimize("O3"))) /* GCC's usual level leaves the sum as it is */
#endif
static void
multiply_portable(const ScanJob *job, const ScanWork *work, size_t rows, size_t query) {
    for (size_t j = 0; j < QUERY_TILE && query + j < job->query_count; j++) {
        const int16_t *values = work->queries + (query + j) * work->width;
        for (size_t row = 0; row < rows; row++) {
            const int8_t *codes = work->rows[row];
            if (j == 0 && row % ROW_TILE == 0) {
                fetch_ahead(job, work, row, query);
            }
            int32_t sum = 0;
            for (size_t i = 0; i < job->dim; i++) {
                sum += values[i] * codes[i];
            }
            work->dots[j * work->capacity + row] =
                (float)sum * work->scaled[query + j] * work->scales[row];
        }
    }
}

void scan_portable(const ScanJob *job, const ScanWork *work) {
    scan_blocks(job, work, multiply_portable, score_portable);
}

#ifdef HAS_NEON
#include <arm_neon.h>

static void multiply_neon(const ScanJob *job, const ScanWork *work, size_t rows, size_t query) {
    for (size_t j = 0; j < QUERY_TILE && query + j < job->query_count; j++) {
        const int16_t *values = work->queries + (query + j) * work->width;
        for (size_t row = 0; row < rows; row++) {
            const int8_t *codes = work->rows[row];
            if (j == 0 && row % ROW_TILE == 0) {
                fetch_ahead(job, work, row, query);
            }
            int32x4_t even = vdupq_n_s32(0), odd = even;
            size_t i = 0;
            for (; i + 8 <= job->dim; i += 8) {
                const int16x8_t code = vmovl_s8(vld1_s8(codes + i)), value = vld1q_s16(values + i);
                even = vmlal_s16(even, vget_low_s16(code), vget_low_s16(value));
                odd = vmlal_s16(odd, vget_high_s16(code), vget_high_s16(value));
            }
            int32_t sum = vaddvq_s32(vaddq_s32(even, odd));
            for (; i < job->dim; i++) {
                sum += values[i] * codes[i];
            }
            work->dots[j * work->capacity + row] =
                (float)sum * work->scaled[query + j] * work->scales[row];
        }
    }
}

void scan_neon(const ScanJob *job, const ScanWork *work) {
    scan_blocks(job, work, multiply_neon, score_portable);
}
#endif
