/* What metering costs each request, a count and two looks at a clock, without a frame of the interpreter and without
 * objects: `server/metrics/call_watch.py` says what. The clock is the one that the kernel moves on at each of its ticks,
 * where there is one: the exact clock has the processor finish all it has begun before it is read, which costs a small
 * request more than the calls do. It is looked at when there was a tick between begin and end. */
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

PyObject *stopwatch(PyObject *module, PyObject *unused) { return PyFloat_FromDouble(seconds_by(CLOCK_MONOTONIC)); }

static void *memory_of(PyObject *parts, int part) { return PyByteArray_AsString(PyTuple_GetItem(parts, part)); }

static PyObject *begin_call(PyObject *parts, PyObject *unused)
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

static PyObject *is_slow(PyObject *parts, PyObject *unused)
{
    watched *one = memory_of(parts, WATCHED);
    one->ended = 0.0;
    if (seconds_by(TICKING) == one->began)
        Py_RETURN_FALSE;
    one->ended = seconds_by(CLOCK_MONOTONIC);
    one->began += one->tick / 2; /* it began between two ticks */
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

PyObject *watch(PyObject *module, PyObject *parts)
{
    if (PyTuple_Size(parts) != PARTS || !is_memory(PyTuple_GetItem(parts, COUNT), sizeof(int64_t)) ||
        !is_memory(PyTuple_GetItem(parts, WATCHED), sizeof(watched)))
        return PyErr_Format(PyExc_TypeError, "watch: parts of another kind");
    watched *one = memory_of(parts, WATCHED);
    struct timespec tick;
    one->tick = clock_getres(TICKING, &tick) == 0 ? in_seconds(tick) : 0.0;
    PyObject *begin = PyCFunction_NewEx(&begin_method, parts, NULL);
    PyObject *slow = PyCFunction_NewEx(&is_slow_method, parts, NULL);
    PyObject *both = begin == NULL || slow == NULL ? NULL : PyTuple_Pack(2, begin, slow);
    Py_XDECREF(begin);
    Py_XDECREF(slow);
    return both;
}
