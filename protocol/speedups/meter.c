/* The measurement of each request, a count and two clock reads, without interpreter frames and objects; the
 * specification is `server/metrics/call_watch.py`. It uses the coarse clock of the kernel if there is one: the
 * processor completes all pending instructions before it reads the exact clock, which costs a small request more than
 * the calls do. The exact clock is read only if the coarse clock has ticked in between. */
#include "speedups.h"

#include <time.h>

#ifdef CLOCK_MONOTONIC_COARSE
#define TICKING CLOCK_MONOTONIC_COARSE
#else
#define TICKING CLOCK_MONOTONIC
#endif

enum { COUNT, WATCHED, PARTS };

typedef struct {
    double due, floor, began, ended, tick;
} watched;

static double in_seconds(struct timespec time) { return (double)time.tv_sec + (double)time.tv_nsec * 1e-9; }

static double seconds_by(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return in_seconds(now);
}

PyObject *stopwatch(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored)) { return PyFloat_FromDouble(seconds_by(CLOCK_MONOTONIC)); }

static void *memory_of(PyObject *parts, int part) { return PyByteArray_AsString(PyTuple_GetItem(parts, part)); }

static PyObject *begin_call(PyObject *parts, PyObject *Py_UNUSED(ignored))
{
    int64_t number;
    void *count = memory_of(parts, COUNT);
    memcpy(&number, count, sizeof number);
    number++;
    memcpy(count, &number, sizeof number);
    watched *one = memory_of(parts, WATCHED);
    one->began = seconds_by(TICKING);
    return PyBool_FromLong(one->began >= one->due);
}

static PyObject *is_slow(PyObject *parts, PyObject *Py_UNUSED(ignored))
{
    watched *one = memory_of(parts, WATCHED);
    one->ended = 0.0;
    if (seconds_by(TICKING) == one->began)
        Py_RETURN_FALSE;
    one->ended = seconds_by(CLOCK_MONOTONIC);
    one->began += one->tick / 2; /* the call began between two ticks */
    if (one->began > one->ended)
        one->began = one->ended;
    return PyBool_FromLong(one->ended - one->began > one->floor);
}

static PyMethodDef begin_method = {"begin", begin_call, METH_NOARGS, NULL};
static PyMethodDef is_slow_method = {"is_slow", is_slow, METH_NOARGS, NULL};

static int is_memory(PyObject *part, Py_ssize_t size)
{
    return PyByteArray_Check(part) && PyByteArray_Size(part) == size;
}

PyObject *watch(PyObject *Py_UNUSED(module), PyObject *parts)
{
    if (PyTuple_Size(parts) != PARTS || !is_memory(PyTuple_GetItem(parts, COUNT), sizeof(int64_t)) ||
        !is_memory(PyTuple_GetItem(parts, WATCHED), sizeof(watched)))
        return PyErr_Format(PyExc_TypeError, "watch: parts of another kind");
    watched *one = memory_of(parts, WATCHED);
    struct timespec tick;
    one->tick = clock_getres(TICKING, &tick) == 0 ? in_seconds(tick) : 0.0;
    /* A bytearray with an exported view cannot be resized, so the checked sizes hold for the life of the functions. */
    PyObject *count_view = PyMemoryView_FromObject(PyTuple_GetItem(parts, COUNT));
    PyObject *watched_view = PyMemoryView_FromObject(PyTuple_GetItem(parts, WATCHED));
    PyObject *held = count_view == NULL || watched_view == NULL
        ? NULL
        : PyTuple_Pack(4, PyTuple_GetItem(parts, COUNT), PyTuple_GetItem(parts, WATCHED), count_view, watched_view);
    Py_XDECREF(count_view);
    Py_XDECREF(watched_view);
    if (held == NULL)
        return NULL;
    PyObject *begin = PyCFunction_NewEx(&begin_method, held, NULL);
    PyObject *slow = PyCFunction_NewEx(&is_slow_method, held, NULL);
    Py_DECREF(held);
    PyObject *both = begin == NULL || slow == NULL ? NULL : PyTuple_Pack(2, begin, slow);
    Py_XDECREF(begin);
    Py_XDECREF(slow);
    return both;
}
