/* The extension module `_speedups`; `_speedups.pyi` says which Python function each of these is the twin of. */
#include "speedups.h"

enum { REVISION = 14 }; /* as in native.py */

static PyMethodDef functions[] = {
    {"scan_batches", scan_batches, METH_VARARGS, NULL},
    {"header_columns", header_columns, METH_VARARGS, NULL},
    {"scan_records", scan_records, METH_VARARGS, NULL},
    {"take_batch", (PyCFunction)(void (*)(void))take_batch, METH_FASTCALL, NULL},
    {"encode_records", encode_records, METH_VARARGS, NULL},
    {"batch_of_pairs", (PyCFunction)(void (*)(void))batch_of_pairs, METH_FASTCALL, NULL},
    {"decode_records", decode_records, METH_VARARGS, NULL},
    {"index_batches", index_batches, METH_VARARGS, NULL},
    {"zeroed", zeroed, METH_VARARGS, NULL},
    {"put_many", put_many, METH_VARARGS, NULL},
    {"get_many", get_many, METH_VARARGS, NULL},
    {"filter_batches", filter_batches, METH_VARARGS, NULL},
    {"read_produce", (PyCFunction)(void (*)(void))read_produce, METH_FASTCALL, NULL},
    {"write_produced", (PyCFunction)(void (*)(void))write_produced, METH_FASTCALL, NULL},
    {"begin_sending", begin_sending, METH_O, NULL},
    {"finish_sending", finish_sending, METH_O, NULL},
    {"open_syncer", open_syncer, METH_O, NULL},
    {"watch", watch, METH_VARARGS, NULL},
    {"stopwatch", stopwatch, METH_NOARGS, NULL},
    {"mallopt", set_mallopt, METH_VARARGS, NULL},
    {"malloc_trim", trim_heap, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_speedups", "Compiled twins of Python functions.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__speedups(void)
{
    crc32c_prepare();
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddIntConstant(module, "REVISION", REVISION) < 0)
        Py_CLEAR(module);
    return module;
}
