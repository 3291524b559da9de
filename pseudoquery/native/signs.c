/* MaxSim over sign codes: the largest dot product of each question token with a document's tokens.
 *
 * A dot product of integers q with signs s is 2 * (sum of |q_i| where s_i has the sign of q_i) minus
 * the sum of all |q_i|. A table of 16 bytes holds the first sum for any four signs, at most 4 * 31,
 * so the sum of two tables fits into a byte: one byte of a code, one lookup for each of its halves.
 * A processor looks up 16, 32 or 64 bytes at once.
 *
 * The tokens of a document lie by column: the first byte of all tokens, then the second, and so on.
 */
#include "kernels.h"

#include <stdlib.h>
#include <string.h>

enum { TABLE = 16, GROUP_TABLES = QUESTION_GROUP * 2 * TABLE };
/* Columns up to which 16 bits hold the sum: 256 * 248 is less than 65,536. */
enum { CHUNK = 256 };

size_t signs_groups(const SignsJob *job) {
    return (job->question_tokens + QUESTION_GROUP - 1) / QUESTION_GROUP;
}

static unsigned size_of(const SignsJob *job, size_t token, size_t i) {
    if (token >= job->question_tokens || i >= job->dim) {
        return 0; /* padding counts for nothing, whatever its bit is */
    }
    return (unsigned)abs(job->question[token * job->dim + i]);
}

static unsigned agreement(const SignsJob *job, size_t token, size_t first, unsigned bits) {
    unsigned sum = 0;
    for (size_t i = 0; i < 4; i++) {
        const unsigned size = size_of(job, token, first + i);
        if (size && ((bits >> i) & 1) == (job->question[token * job->dim + first + i] > 0)) {
            sum += size;
        }
    }
    return sum;
}

void signs_fill_tables(const SignsJob *job, const SignsTables *tables) {
    for (size_t token = 0; token < signs_groups(job) * QUESTION_GROUP; token++) {
        tables->sums[token] = 0;
        for (size_t i = 0; i < job->dim; i++) {
            tables->sums[token] += (int32_t)size_of(job, token, i);
        }
    }
    uint8_t *entry = tables->tables;
    for (size_t group = 0; group < signs_groups(job); group++) {
        for (size_t column = 0; column < tables->columns; column++) {
            for (size_t j = 0; j < QUESTION_GROUP; j++) {
                for (size_t half = 0; half < 2; half++) {
                    for (unsigned bits = 0; bits < TABLE; bits++) {
                        *entry++ = (uint8_t)agreement(job, group * QUESTION_GROUP + j,
                                                      column * 8 + half * 4, bits);
                    }
                }
            }
        }
    }
}

/* Turn the largest agreements of a group of question tokens into dot products. */
static void store(const SignsJob *job, const SignsTables *tables, size_t document, size_t group,
                  const uint32_t *most) {
    for (size_t j = 0; j < QUESTION_GROUP; j++) {
        const size_t token = group * QUESTION_GROUP + j;
        if (token < job->question_tokens) {
            job->best[document * job->question_tokens + token] =
                job->counts[document] ? 2 * (int32_t)most[j] - tables->sums[token]
                                      : -31 * (int32_t)job->dim - 1;
        }
    }
}

/* Four sums of 16 bits in one word, one for each question token of a group. */
static void document_portable(const uint64_t *words, size_t columns, const uint8_t *codes,
                              size_t tokens, uint32_t *most) {
    for (size_t at = 0; at < tokens; at++) {
        uint32_t totals[QUESTION_GROUP] = {0};
        for (size_t chunk = 0; chunk < columns; chunk += CHUNK) {
            const size_t end = chunk + CHUNK < columns ? chunk + CHUNK : columns;
            uint64_t sums = 0;
            for (size_t column = chunk; column < end; column++) {
                const uint8_t code = codes[column * tokens + at];
                const uint64_t *word = words + column * 2 * TABLE;
                sums += word[code & 15] + word[TABLE + (code >> 4)];
            }
            for (size_t j = 0; j < QUESTION_GROUP; j++) {
                totals[j] += (uint32_t)(sums >> (16 * j)) & 0xffff;
            }
        }
        for (size_t j = 0; j < QUESTION_GROUP; j++) {
            most[j] = totals[j] > most[j] ? totals[j] : most[j];
        }
    }
}

void signs_portable(const SignsJob *job, const SignsTables *tables) {
    uint64_t *words = (uint64_t *)tables->work;
    for (size_t group = 0; group < signs_groups(job); group++) {
        const uint8_t *table = tables->tables + group * tables->columns * GROUP_TABLES;
        for (size_t column = 0; column < tables->columns; column++, table += GROUP_TABLES) {
            for (size_t i = 0; i < 2 * TABLE; i++) {
                uint64_t word = 0;
                for (size_t j = 0; j < QUESTION_GROUP; j++) {
                    word |= (uint64_t)table[j * 2 * TABLE + i] << (16 * j);
                }
                words[column * 2 * TABLE + i] = word;
            }
        }
        for (size_t document = 0; document < job->documents; document++) {
            uint32_t most[QUESTION_GROUP] = {0};
            document_portable(words, tables->columns, job->codes + job->starts[document],
                              (size_t)job->counts[document], most);
            store(job, tables, document, group, most);
        }
    }
}

#ifdef HAS_AVX
#include <immintrin.h>

#define LANES 32
#define NAME(name) name##_avx2
#define TARGET __attribute__((target("avx2")))
#define SHUFFLE(table, index) \
    (Bytes) _mm256_shuffle_epi8(                                                  \
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(table))), (__m256i)(index))
#include "signs_kernel.h"

#define LANES 64
#define NAME(name) name##_avx512
#define TARGET __attribute__((target("avx512f,avx512bw")))
#define SHUFFLE(table, index) \
    (Bytes) _mm512_shuffle_epi8(                                                  \
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(table))), (__m512i)(index))
#include "signs_kernel.h"
#endif

#ifdef HAS_NEON
#include <arm_neon.h>

#define LANES 16
#define NAME(name) name##_neon
#define TARGET
#define SHUFFLE(table, index) (Bytes) vqtbl1q_u8(vld1q_u8(table), (uint8x16_t)(index))
#include "signs_kernel.h"
#endif
