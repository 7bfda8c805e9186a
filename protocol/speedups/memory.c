/* Controls the C library's treatment of freed memory. The alternative `ctypes` takes half a megabyte itself. */
#include "speedups.h"

#include <stdlib.h> /* defines __GLIBC__ with glibc */

#ifdef __GLIBC__
#include <malloc.h>
#endif

/* mallopt(parameter, value): glibc's mallopt(3); 0 with other C libraries. */
PyObject *set_mallopt(PyObject *Py_UNUSED(module), PyObject *args)
{
    int parameter, value, done = 0;
    if (!PyArg_ParseTuple(args, "ii", &parameter, &value))
        return NULL;
#ifdef __GLIBC__
    done = mallopt(parameter, value);
#endif
    return PyLong_FromLong(done);
}

/* malloc_trim(pad): glibc's malloc_trim(3); 0 with other C libraries. */
PyObject *trim_heap(PyObject *Py_UNUSED(module), PyObject *args)
{
    int pad, done = 0;
    if (!PyArg_ParseTuple(args, "i", &pad))
        return NULL;
#ifdef __GLIBC__
    done = malloc_trim((size_t)pad);
#endif
    return PyLong_FromLong(done);
}
