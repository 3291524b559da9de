/* The extension's Python side: it checks the sizes of buffers, and releases Python's lock while a
 * kernel computes. `signs.py` checks what the buffers for sign codes hold. */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>

#include "kernels.h"

#include <string.h>

/* `choice.py` expects this number: count up when a function is added or takes other arguments. */
enum { INTERFACE = 2 };

#define SIZES_DO_NOT_FIT "the sizes of the buffers do not fit together."

typedef struct {
    const char *name;
    SignsKernel *signs;
    ScanKernel *scan;
} Kernel;

/* The fastest is first. */
static const Kernel KERNELS[] = {
#ifdef HAS_AVX
    {"avx512", signs_avx512, scan_avx512},
    {"avx2", signs_avx2, scan_avx2},
#endif
#ifdef HAS_NEON
    {"neon", signs_neon, scan_neon},
#endif
    {"portable", signs_portable, scan_portable},
};
enum { KERNEL_COUNT = sizeof KERNELS / sizeof *KERNELS };

static int runs_here(const Kernel *kernel) {
#ifdef HAS_AVX
    if (!strcmp(kernel->name, "avx512")) {
        return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512vnni");
    }
    if (!strcmp(kernel->name, "avx2")) {
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    }
#endif
    (void)kernel;
    return 1;
}

static const Kernel *find_kernel(const char *name) {
    for (size_t i = 0; i < KERNEL_COUNT; i++) {
        if (!strcmp(KERNELS[i].name, name) && runs_here(&KERNELS[i])) {
            return &KERNELS[i];
        }
    }
    PyErr_Format(PyExc_ValueError, "this machine has no kernel '%s'.", name);
    return NULL;
}

static PyObject *names_of_kernels(PyObject *module, PyObject *arguments) {
    (void)module, (void)arguments;
    PyObject *names = PyList_New(0);
    for (size_t i = 0; names && i < KERNEL_COUNT; i++) {
        if (!runs_here(&KERNELS[i])) {
            continue;
        }
        PyObject *name = PyUnicode_FromString(KERNELS[i].name);
        if (!name || PyList_Append(names, name)) {
            Py_CLEAR(names);
        }
        Py_XDECREF(name);
    }
    return names;
}

static int run_signs(const Kernel *kernel, const SignsJob *job) {
    const size_t groups = signs_groups(job), columns = (job->dim + 7) / 8;
    const size_t table_bytes = groups * columns * QUESTION_GROUP * 32;
    const size_t sums_bytes = groups * QUESTION_GROUP * sizeof(int32_t);
    const size_t work_bytes = columns * SIGNS_WORK;
    uint8_t *memory = PyMem_Malloc(work_bytes + sums_bytes + table_bytes);
    if (!memory) {
        PyErr_NoMemory();
        return -1;
    }
    const SignsTables tables = {columns, memory + work_bytes + sums_bytes,
                                (int32_t *)(memory + work_bytes), memory};
    Py_BEGIN_ALLOW_THREADS
    signs_fill_tables(job, &tables);
    kernel->signs(job, &tables);
    Py_END_ALLOW_THREADS
    PyMem_Free(memory);
    return 0;
}

static PyObject *max_dots(PyObject *module, PyObject *arguments) {
    (void)module;
    const char *name;
    Py_ssize_t dim;
    Py_buffer question, codes, starts, counts, best;
    if (!PyArg_ParseTuple(arguments, "sny*y*y*y*w*:max_dots", &name, &dim, &question, &codes,
                          &starts, &counts, &best)) {
        return NULL;
    }
    int failed = -1;
    const Kernel *kernel = find_kernel(name);
    const Py_ssize_t documents = starts.len / (Py_ssize_t)sizeof(int64_t);
    const Py_ssize_t tokens = dim > 0 ? question.len / dim : 0;
    if (kernel && (dim < 1 || tokens * dim != question.len || counts.len != starts.len ||
                   best.len != documents * tokens * (Py_ssize_t)sizeof(int32_t))) {
        PyErr_SetString(PyExc_ValueError, SIZES_DO_NOT_FIT);
    } else if (kernel) {
        const SignsJob job = {.question = question.buf,
                              .question_tokens = (size_t)tokens,
                              .dim = (size_t)dim,
                              .codes = codes.buf,
                              .starts = starts.buf,
                              .counts = counts.buf,
                              .documents = (size_t)documents,
                              .best = best.buf};
        failed = run_signs(kernel, &job);
    }
    PyBuffer_Release(&question);
    PyBuffer_Release(&codes);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&counts);
    PyBuffer_Release(&best);
    if (failed) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static int check_scan(const ScanJob *job, Py_ssize_t vectors) {
    const size_t outside = scan_first_outside(job, vectors);
    if (outside < job->documents) {
        PyErr_Format(PyExc_ValueError,
                     "document %zu is not within the %zd vectors and the %zu columns.", outside,
                     vectors, job->stride);
        return -1;
    }
    if (!scan_sums_fit(job)) {
        PyErr_Format(PyExc_ValueError, "the values of a query sum up to more than %d.",
                     SCAN_LARGEST_SUM);
        return -1;
    }
    return 0;
}

static int run_scan(const Kernel *kernel, const ScanJob *job) {
    const size_t queries = scan_queries(job), width = scan_width(job), rows = scan_capacity(job);
    const size_t bytes = rows * sizeof(int8_t *) + queries * (sizeof(float) + sizeof(uint32_t)) +
                         rows * (1 + QUERY_TILE) * sizeof(float) +
                         queries * width * (sizeof(int16_t) + 2);
    void *memory = PyMem_Calloc(bytes, 1);
    if (!memory) {
        PyErr_NoMemory();
        return -1;
    }
    ScanWork work = {.width = width, .capacity = rows};
    work.rows = memory;
    work.scales = (float *)(work.rows + rows);
    work.dots = work.scales + rows;
    work.scaled = work.dots + rows * QUERY_TILE;
    work.corrections = (uint32_t *)(work.scaled + queries);
    work.queries = (int16_t *)(work.corrections + queries);
    work.high = (int8_t *)(work.queries + queries * width);
    work.low = (uint8_t *)(work.high + queries * width);
    Py_BEGIN_ALLOW_THREADS
    scan_fill_queries(job, &work);
    kernel->scan(job, &work);
    Py_END_ALLOW_THREADS
    PyMem_Free(memory);
    return 0;
}

static PyObject *estimate(PyObject *module, PyObject *arguments) {
    (void)module;
    const char *name;
    Py_ssize_t dim;
    int softmax;
    Py_buffer queries, query_scales, codes, code_scales, starts, counts, positions, estimates;
    Py_buffer *const buffers[] = {&queries, &query_scales, &codes,     &code_scales,
                                  &starts,  &counts,       &positions, &estimates};
    if (!PyArg_ParseTuple(arguments, "snpy*y*y*y*y*y*y*w*:estimate", &name, &dim, &softmax, &queries,
                          &query_scales, &codes, &code_scales, &starts, &counts, &positions,
                          &estimates)) {
        return NULL;
    }
    int failed = -1;
    const Kernel *kernel = find_kernel(name);
    const Py_ssize_t query_count = query_scales.len / (Py_ssize_t)sizeof(float);
    const Py_ssize_t vectors = code_scales.len / (Py_ssize_t)sizeof(float);
    const Py_ssize_t row = query_count ? estimates.len / query_count : 0;
    if (kernel && (dim < 1 || queries.len != query_count * dim * (Py_ssize_t)sizeof(int16_t) ||
                   codes.len != vectors * dim || counts.len != starts.len ||
                   positions.len != starts.len || estimates.len != query_count * row)) {
        PyErr_SetString(PyExc_ValueError, SIZES_DO_NOT_FIT);
    } else if (kernel) {
        const ScanJob job = {.queries = queries.buf,
                             .query_scales = query_scales.buf,
                             .query_count = (size_t)query_count,
                             .dim = (size_t)dim,
                             .codes = codes.buf,
                             .code_scales = code_scales.buf,
                             .starts = starts.buf,
                             .counts = counts.buf,
                             .positions = positions.buf,
                             .documents = (size_t)starts.len / sizeof(int64_t),
                             .softmax = softmax,
                             .estimates = estimates.buf,
                             .stride = (size_t)row / sizeof(float)};
        failed = check_scan(&job, vectors) || run_scan(kernel, &job);
    }
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        PyBuffer_Release(buffers[i]);
    }
    if (failed) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef METHODS[] = {
    {"names", names_of_kernels, METH_NOARGS, "Name the kernels that run here, the fastest first."},
    {"max_dots", max_dots, METH_VARARGS, "Find the largest dot products with sign codes."},
    {"estimate", estimate, METH_VARARGS, "Estimate scores from vectors in 8 bits."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "pseudoquery.native.kernels", "Products of small codes.", 0, METHODS,
    NULL,                  NULL,                         NULL,                       NULL,
};

PyMODINIT_FUNC PyInit_kernels(void) {
    PyObject *module = PyModule_Create(&MODULE);
    if (module && PyModule_AddIntConstant(module, "INTERFACE", INTERFACE)) {
        Py_CLEAR(module);
    }
    return module;
}
