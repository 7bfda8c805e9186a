/* Makes many folders, and renames many files, in one call each. A Python thread releases the interpreter's lock for each
 * system call, and a busy event loop keeps the lock for milliseconds until the thread has it again: ten thousand folders
 * would take minutes. Here the lock is released once. */
#include "speedups.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIRECTORY_MODE = 0700, FILE_MODE = 0600 }; /* as in filesystem.py */

typedef struct {
    const char *path;
    const char *content; /* of a file, or its new name; NULL for a folder */
    Py_ssize_t size;
} step;

/* Get the steps of a list of (bytes, bytes or None), for the caller to free; NULL with an exception. */
static step *steps_of(PyObject *list, int are_renames)
{
    if (!PyList_Check(list))
        return PyErr_Format(PyExc_TypeError, "steps are a list"), NULL;
    Py_ssize_t count = PyList_Size(list), got = 0;
    step *steps = malloc((size_t)count * sizeof *steps + 1);
    if (steps == NULL)
        return PyErr_NoMemory(), NULL;
    for (; got < count; got++) {
        PyObject *pair = PyList_GetItem(list, got);
        char *path, *content = NULL;
        Py_ssize_t size = 0;
        if (!PyTuple_Check(pair) || PyTuple_Size(pair) != 2) {
            PyErr_SetString(PyExc_TypeError, "a step has two parts");
            break;
        }
        PyObject *argument = PyTuple_GetItem(pair, 1);
        /* Without a variable for the size, bytes with a null byte are refused. */
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(pair, 0), &path, NULL) < 0)
            break;
        if ((are_renames || argument != Py_None)
            && PyBytes_AsStringAndSize(argument, &content, are_renames ? NULL : &size) < 0)
            break;
        steps[got] = (step){path, content, size};
    }
    if (got == count)
        return steps;
    free(steps);
    return NULL;
}

static int make_folder(const char *path, int *is_existing)
{
    int error = mkdir(path, DIRECTORY_MODE) < 0 ? errno : 0;
    *is_existing = error == EEXIST;
    return *is_existing ? 0 : error;
}

static int make_file(const step *one)
{
    int file, error = 0;
    do
        file = open(one->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, FILE_MODE);
    while (file < 0 && errno == EINTR);
    if (file < 0)
        return errno;
    for (Py_ssize_t at = 0; at < one->size && error == 0;) {
        ssize_t written = write(file, one->content + at, (size_t)(one->size - at));
        if (written > 0)
            at += written;
        else if (written == 0 || errno != EINTR)
            error = written == 0 ? EIO : errno;
    }
    close(file);
    return error;
}

/* make_folders(steps): a step is (folder, None) or (file, content); the files of a folder follow it.
 *
 * Returns the number of steps that are done, the error number of the next step or 0, and a byte for each step that is
 * done: 1 for a folder that existed and for its files, which are left as they are. */
PyObject *make_folders(PyObject *Py_UNUSED(module), PyObject *list)
{
    step *steps = steps_of(list, 0);
    if (steps == NULL)
        return NULL;
    Py_ssize_t count = PyList_Size(list), done = 0;
    char *existing = malloc((size_t)count + 1);
    if (existing == NULL)
        return free(steps), PyErr_NoMemory();
    int error = 0, is_existing = 0;
    Py_BEGIN_ALLOW_THREADS
    for (; done < count; done++) {
        const step *one = &steps[done];
        if (one->content == NULL)
            error = make_folder(one->path, &is_existing);
        else if (!is_existing)
            error = make_file(one);
        if (error != 0)
            break;
        existing[done] = (char)is_existing;
    }
    Py_END_ALLOW_THREADS
    PyObject *result = Py_BuildValue("niy#", done, error, existing, done);
    free(existing);
    free(steps);
    return result;
}

/* rename_all(steps): rename each (old, new). Returns the number of steps that are done, and the error number of the
 * next step or 0. */
PyObject *rename_all(PyObject *Py_UNUSED(module), PyObject *list)
{
    step *steps = steps_of(list, 1);
    if (steps == NULL)
        return NULL;
    Py_ssize_t count = PyList_Size(list), done = 0;
    int error = 0;
    Py_BEGIN_ALLOW_THREADS
    for (; done < count && error == 0; done += error == 0)
        if (rename(steps[done].path, steps[done].content) < 0)
            error = errno;
    Py_END_ALLOW_THREADS
    free(steps);
    return Py_BuildValue("ni", done, error);
}
