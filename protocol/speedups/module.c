/* The extension module `_speedups`; `_speedups.pyi` names the Python twin of each function. */
#include "speedups.h"

enum { REVISION = 15 }; /* as in native.py */

static PyMethodDef functions[] = {
    {"scan_batches", scan_batches, METH_VARARGS, NULL},
    {"header_columns", header_columns, METH_VARARGS, NULL},
    {"scan_records", scan_records, METH_VARARGS, NULL},
    {"validate_and_stamp", (PyCFunction)(void (*)(void))validate_and_stamp, METH_FASTCALL, NULL},
    {"encode_records", encode_records, METH_VARARGS, NULL},
    {"batch_of_pairs", (PyCFunction)(void (*)(void))batch_of_pairs, METH_FASTCALL, NULL},
    {"decode_records", decode_records, METH_VARARGS, NULL},
    {"index_batches", index_batches, METH_VARARGS, NULL},
    {"check_replicated_batches", check_replicated_batches, METH_VARARGS, NULL},
    {"zeroed", zeroed, METH_VARARGS, NULL},
    {"put_many", put_many, METH_VARARGS, NULL},
    {"get_many", get_many, METH_VARARGS, NULL},
    {"filter_batches", filter_batches, METH_VARARGS, NULL},
    {"read_produce", (PyCFunction)(void (*)(void))read_produce, METH_FASTCALL, NULL},
    {"write_produced", (PyCFunction)(void (*)(void))write_produced, METH_FASTCALL, NULL},
    {"group_produce_requests", (PyCFunction)(void (*)(void))group_produce_requests, METH_FASTCALL, NULL},
    {"join_accepted_produces", join_accepted_produces, METH_VARARGS, NULL},
    {"locate_batches", locate_batches, METH_VARARGS, NULL},
    {"begin_sending", begin_sending, METH_O, NULL},
    {"finish_sending", finish_sending, METH_O, NULL},
    {"is_sending", is_sending, METH_O, NULL},
    {"open_syncer", open_syncer, METH_O, NULL},
    {"make_folders", make_folders, METH_O, NULL},
    {"rename_all", rename_all, METH_O, NULL},
    {"watch", watch, METH_VARARGS, NULL},
    {"stopwatch", stopwatch, METH_NOARGS, NULL},
    {"mallopt", set_mallopt, METH_VARARGS, NULL},
    {"malloc_trim", trim_heap, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int prepare_module(PyObject *module)
{
    crc32c_prepare();
    return PyModule_AddIntConstant(module, "REVISION", REVISION);
}

/* The functions read lists and dicts of their callers, and `send.c` has one batch for the whole process: both need the
 * GIL, and a free-threaded Python enables it as long as this module is loaded. The stable ABI of 3.11 has no name for
 * these two slots; there the GIL is the only mode. */
static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)prepare_module},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_speedups",
    .m_doc = "Compiled twins of Python functions.",
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__speedups(void) { return PyModuleDef_Init(&definition); }
