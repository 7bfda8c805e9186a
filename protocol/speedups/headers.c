/* The headers of many records as columns of numbers, next to the columns of the batch scan. */
#include "record_parts.h"

enum { COUNTS, KEY_STARTS, KEY_SIZES, VALUE_STARTS, VALUE_SIZES, HEADER_COLUMNS };

typedef struct {
    const uint8_t *data;
    columns rows;
    Py_ssize_t first, end;
    int32_t *columns[HEADER_COLUMNS]; /* the first has a number per row, the others a number per header */
} header_scan;

static int are_rows_inside(const header_scan *scan, Py_ssize_t size)
{
    for (Py_ssize_t row = scan->first; row < scan->end; row++) {
        int32_t start = scan->rows.header_starts[row], end = scan->rows.ends[row];
        if (start < 0 || start > end || end > size)
            return 0;
    }
    return 1;
}

/* Fill the first column. Returns the number of headers, or -1 if a record has an impossible number of them. */
static int64_t count_headers(const header_scan *scan)
{
    int64_t count, total = 0;
    for (Py_ssize_t row = scan->first; row < scan->end; row++) {
        if (locate_headers(scan->data + scan->rows.header_starts[row], scan->data + scan->rows.ends[row], &count) == NULL)
            return -1;
        scan->columns[COUNTS][row - scan->first] = (int32_t)count, total += count;
    }
    return total;
}

/* Fill the other columns, which have room for `total` headers; false if headers do not end where their record does. */
static int add_headers(const header_scan *scan, int64_t total)
{
    const uint8_t *data = scan->data;
    int32_t *const *filled = scan->columns;
    header_parts found;
    int64_t count;
    Py_ssize_t header = 0;
    for (Py_ssize_t row = scan->first; row < scan->end; row++) {
        const uint8_t *end = data + scan->rows.ends[row];
        const uint8_t *at = locate_headers(data + scan->rows.header_starts[row], end, &count);
        for (; at != NULL && count; count--, header++) {
            if (header == total || (at = locate_header(at, end, &found)) == NULL)
                return 0;
            filled[KEY_STARTS][header] = (int32_t)(found.key_start - data);
            filled[KEY_SIZES][header] = (int32_t)found.key_size;
            filled[VALUE_STARTS][header] = (int32_t)(found.value_start - data);
            filled[VALUE_SIZES][header] = (int32_t)found.value_size;
        }
        if (at != end)
            return 0;
    }
    return 1;
}

PyObject *header_columns(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer data, block;
    Py_ssize_t capacity;
    header_scan scan = {0};
    PyObject *made[HEADER_COLUMNS] = {NULL}, *found = NULL;
    if (!PyArg_ParseTuple(args, "y*(w*nnn):header_columns", &data, &block, &capacity, &scan.first, &scan.end))
        return NULL;
    scan.data = data.buf;
    int sound = columns_of(&block, capacity, &scan.rows);
    if (sound && (data.len > INT32_MAX || scan.first < 0 || scan.first > scan.end || scan.end > capacity
                  || !are_rows_inside(&scan, data.len))) {
        PyErr_SetString(PyExc_ValueError, "no such rows, or rows that lie outside their buffer");
        sound = 0;
    }
    int64_t rows = scan.end - scan.first;
    for (int i = 0; sound && rows >= 0 && i < HEADER_COLUMNS; i++) {
        made[i] = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)sizeof(int32_t) * (Py_ssize_t)rows);
        if ((sound = made[i] != NULL))
            scan.columns[i] = (int32_t *)PyByteArray_AsString(made[i]);
        if (sound && i == COUNTS)
            rows = count_headers(&scan);
    }
    if (sound && rows >= 0 && add_headers(&scan, rows))
        found = PyTuple_Pack(HEADER_COLUMNS, made[0], made[1], made[2], made[3], made[4]);
    for (int i = 0; i < HEADER_COLUMNS; i++)
        Py_XDECREF(made[i]);
    PyBuffer_Release(&data), PyBuffer_Release(&block);
    return found == NULL && !PyErr_Occurred() ? Py_BuildValue("") : found;
}
