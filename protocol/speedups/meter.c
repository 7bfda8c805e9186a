/* What metering costs each request, a count and two looks at the clock, without a frame of the interpreter and without
 * objects: `server/metrics/call_watch.py` says what. */
#include "speedups.h"

#include <time.h>

enum { COUNT, WATCHED, PARTS };

typedef struct {
    double due, floor, began, ended;
} watched;

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

PyObject *stopwatch(PyObject *module, PyObject *unused) { return PyFloat_FromDouble(seconds_now()); }

static void *memory_of(PyObject *parts, int part) { return PyByteArray_AsString(PyTuple_GetItem(parts, part)); }

static PyObject *begin_call(PyObject *parts, PyObject *unused)
{
    int64_t number;
    void *count = memory_of(parts, COUNT);
    memcpy(&number, count, sizeof number);
    number++;
    memcpy(count, &number, sizeof number);
    watched *one = memory_of(parts, WATCHED);
    one->began = seconds_now();
    return PyBool_FromLong(one->began >= one->due);
}

static PyObject *is_slow(PyObject *parts, PyObject *unused)
{
    watched *one = memory_of(parts, WATCHED);
    one->ended = seconds_now();
    return PyBool_FromLong(one->ended - one->began > one->floor);
}

static PyMethodDef begin_method = {"begin", begin_call, METH_NOARGS, NULL};
static PyMethodDef is_slow_method = {"is_slow", is_slow, METH_NOARGS, NULL};

static int is_memory(PyObject *part, Py_ssize_t size)
{
    return PyByteArray_Check(part) && PyByteArray_Size(part) == size;
}

PyObject *watch(PyObject *module, PyObject *parts)
{
    if (PyTuple_Size(parts) != PARTS || !is_memory(PyTuple_GetItem(parts, COUNT), sizeof(int64_t)) ||
        !is_memory(PyTuple_GetItem(parts, WATCHED), sizeof(watched)))
        return PyErr_Format(PyExc_TypeError, "watch: parts of another kind");
    PyObject *begin = PyCFunction_NewEx(&begin_method, parts, NULL);
    PyObject *slow = PyCFunction_NewEx(&is_slow_method, parts, NULL);
    PyObject *both = begin == NULL || slow == NULL ? NULL : PyTuple_Pack(2, begin, slow);
    Py_XDECREF(begin);
    Py_XDECREF(slow);
    return both;
}
