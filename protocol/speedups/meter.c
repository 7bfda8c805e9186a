/* What metering costs each request: a count and two looks at the clock, without a frame of the interpreter around the
 * handler. What is to be looked at more closely is left to Python: `server/metrics/metered_calls.py` says what. */
#include "speedups.h"

#include <time.h>

enum { HANDLE, CLOCK, TIMED, BEYOND, COUNT, LIMITS, PARTS };
enum { CONTEXT, REQUEST, ARGUMENTS };

typedef struct {
    double due, floor;
} limits;

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

PyObject *stopwatch(PyObject *module, PyObject *unused) { return PyFloat_FromDouble(seconds_now()); }

/* What `clock` says, without a call and an object if it is `stopwatch`. */
static int look_at(PyObject *clock, double *seconds)
{
    if (PyCFunction_Check(clock) && PyCFunction_GetFunction(clock) == stopwatch) {
        *seconds = seconds_now();
        return 1;
    }
    PyObject *now = PyObject_CallNoArgs(clock);
    if (now == NULL)
        return 0;
    *seconds = PyFloat_AsDouble(now);
    Py_DECREF(now);
    return *seconds != -1.0 || !PyErr_Occurred();
}

static PyObject *its_name; /* "is_answered" */

/* Whether the handler has answered by itself; -1 with an exception. */
static int is_answered(PyObject *context, PyObject *answer)
{
    if (answer != Py_None)
        return 0;
    PyObject *told = PyObject_GetAttr(context, its_name);
    if (told == NULL)
        return -1;
    int answered = told == Py_True;
    Py_DECREF(told);
    return answered;
}

static PyObject *call_metered(PyObject *parts, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != ARGUMENTS)
        return PyErr_Format(PyExc_TypeError, "a handler takes a context and a request");
    PyObject *context = arguments[CONTEXT], *request = arguments[REQUEST], *clock = PyTuple_GetItem(parts, CLOCK);
    int64_t number;
    void *counted = PyByteArray_AsString(PyTuple_GetItem(parts, COUNT));
    memcpy(&number, counted, sizeof number);
    number++;
    memcpy(counted, &number, sizeof number);
    double began, ended;
    limits now;
    if (!look_at(clock, &began))
        return NULL;
    memcpy(&now, PyByteArray_AsString(PyTuple_GetItem(parts, LIMITS)), sizeof now);
    if (began >= now.due)
        return PyObject_CallFunctionObjArgs(PyTuple_GetItem(parts, TIMED), context, request, NULL);
    PyObject *answer = PyObject_CallFunctionObjArgs(PyTuple_GetItem(parts, HANDLE), context, request, NULL);
    if (answer == NULL)
        return NULL;
    int answered = is_answered(context, answer);
    if (answered >= 0 && look_at(clock, &ended)) {
        if (answered && ended - began <= now.floor)
            return answer;
        PyObject *done = PyObject_CallFunction(
            PyTuple_GetItem(parts, BEYOND), "OOOdd", context, request, answer, began, ended);
        if (done != NULL) {
            Py_DECREF(done);
            return answer;
        }
    }
    Py_DECREF(answer);
    return NULL;
}

static PyMethodDef metered_call = {"metered", (PyCFunction)(void (*)(void))call_metered, METH_FASTCALL, NULL};

PyObject *metered(PyObject *module, PyObject *parts)
{
    if (!PyTuple_Check(parts) || PyTuple_Size(parts) != PARTS || !PyByteArray_Check(PyTuple_GetItem(parts, COUNT)) ||
        !PyByteArray_Check(PyTuple_GetItem(parts, LIMITS)) ||
        PyByteArray_Size(PyTuple_GetItem(parts, COUNT)) != sizeof(int64_t) ||
        PyByteArray_Size(PyTuple_GetItem(parts, LIMITS)) != sizeof(limits))
        return PyErr_Format(PyExc_TypeError, "metered: parts of another kind");
    if (its_name == NULL && (its_name = PyUnicode_InternFromString("is_answered")) == NULL)
        return NULL;
    return PyCFunction_NewEx(&metered_call, parts, NULL);
}
