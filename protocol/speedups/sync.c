/* Syncs files on a thread of its own. Waiting for a disk needs no interpreter, and a Python thread that has waited for
 * the disk and then waits for the interpreter takes it from the loop when the loop is busiest. The end of a round is
 * signalled by a byte on a descriptor that the loop watches. */
#include "speedups.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    pid_t process; /* a forked process does not have the thread */
    int wake;
    int *descriptors; /* of the current round */
    Py_ssize_t count;
    int is_new, is_busy, is_closing, error;
    double seconds;
} syncer;

static const char *const NAME = "barnabas.syncer";

static int sync_data(int descriptor)
{
    int done;
    do {
#if defined(F_FULLFSYNC) /* on macOS fsync stops at the drive's own cache */
        done = fcntl(descriptor, F_FULLFSYNC);
#elif defined(__linux__) || (defined(_POSIX_SYNCHRONIZED_IO) && _POSIX_SYNCHRONIZED_IO > 0) /* musl lacks the macro */
        done = fdatasync(descriptor);
#else
        done = fsync(descriptor);
#endif
    } while (done < 0 && errno == EINTR);
    return done < 0 ? errno : 0;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void run_round(syncer *one)
{
    double began = now();
    one->error = 0;
    for (Py_ssize_t index = 0; index < one->count && one->error == 0; index++)
        one->error = sync_data(one->descriptors[index]);
    one->seconds = now() - began;
}

static void tell(int descriptor)
{
    while (write(descriptor, "", 1) < 0 && errno == EINTR)
        ;
}

static void *be_the_syncer(void *memory)
{
    syncer *one = memory;
    pthread_mutex_lock(&one->lock);
    for (;;) {
        while (!one->is_new && !one->is_closing)
            pthread_cond_wait(&one->changed, &one->lock);
        if (!one->is_new)
            break;
        one->is_new = 0;
        pthread_mutex_unlock(&one->lock);
        run_round(one);
        pthread_mutex_lock(&one->lock);
        one->is_busy = 0;
        pthread_mutex_unlock(&one->lock);
        tell(one->wake);
        pthread_mutex_lock(&one->lock);
    }
    pthread_mutex_unlock(&one->lock);
    return NULL;
}

/* begin(descriptors): sync the data of these open files, one after the other. One round at a time. */
static PyObject *begin_sync(PyObject *capsule, PyObject *list)
{
    syncer *one = PyCapsule_GetPointer(capsule, NAME);
    if (one == NULL)
        return NULL;
    if (!PyList_Check(list))
        return PyErr_Format(PyExc_TypeError, "descriptors are a list");
    Py_ssize_t count = PyList_Size(list);
    int *descriptors = malloc((size_t)count * sizeof *descriptors + 1);
    if (descriptors == NULL)
        return PyErr_NoMemory();
    for (Py_ssize_t index = 0; index < count; index++) {
        descriptors[index] = (int)PyLong_AsLong(PyList_GetItem(list, index));
        if (descriptors[index] == -1 && PyErr_Occurred()) {
            free(descriptors);
            return NULL;
        }
    }
    pthread_mutex_lock(&one->lock);
    int is_free = !one->is_busy && !one->is_closing;
    if (is_free) {
        free(one->descriptors);
        one->descriptors = descriptors;
        one->count = count;
        one->is_new = one->is_busy = 1;
        pthread_cond_signal(&one->changed);
    }
    pthread_mutex_unlock(&one->lock);
    if (is_free)
        Py_RETURN_NONE;
    free(descriptors);
    return PyErr_Format(PyExc_RuntimeError, "a round of syncs is under way, or there are no more");
}

/* end(): seconds and error number (0 for success) of the round whose end was signalled. */
static PyObject *end_sync(PyObject *capsule, PyObject *Py_UNUSED(unused))
{
    syncer *one = PyCapsule_GetPointer(capsule, NAME);
    if (one == NULL)
        return NULL;
    pthread_mutex_lock(&one->lock);
    int is_busy = one->is_busy; /* if so, the thread still writes the other fields */
    int error = is_busy ? 0 : one->error;
    double seconds = is_busy ? 0 : one->seconds;
    pthread_mutex_unlock(&one->lock);
    if (is_busy)
        return PyErr_Format(PyExc_RuntimeError, "the round is not over");
    return Py_BuildValue("di", seconds, error);
}

static void stop(syncer *one)
{
    pthread_mutex_lock(&one->lock);
    int is_open = !one->is_closing;
    one->is_closing = 1;
    pthread_cond_signal(&one->changed);
    pthread_mutex_unlock(&one->lock);
    if (is_open)
        pthread_join(one->thread, NULL);
}

/* close(): wait for the current round and accept no further one. */
static PyObject *close_syncer(PyObject *capsule, PyObject *Py_UNUSED(unused))
{
    syncer *one = PyCapsule_GetPointer(capsule, NAME);
    if (one == NULL)
        return NULL;
    if (one->process == getpid()) {
        Py_BEGIN_ALLOW_THREADS
        stop(one);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

static void destroy(PyObject *capsule)
{
    syncer *one = PyCapsule_GetPointer(capsule, NAME);
    if (one->process != getpid())
        return; /* in a fork: a thread of the parent may hold the lock */
    /* A round may be running: the interpreter must not wait for the disk. */
    Py_BEGIN_ALLOW_THREADS
    stop(one);
    Py_END_ALLOW_THREADS
    pthread_cond_destroy(&one->changed);
    pthread_mutex_destroy(&one->lock);
    free(one->descriptors);
    free(one);
}

/* Block signals, which are for Python's threads. */
static int start_thread(syncer *one)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&one->thread, NULL, be_the_syncer, one);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static PyMethodDef begin_method = {"begin", begin_sync, METH_O, NULL};
static PyMethodDef end_method = {"end", end_sync, METH_NOARGS, NULL};
static PyMethodDef close_method = {"close", close_syncer, METH_NOARGS, NULL};

static PyObject *methods_of(PyObject *capsule)
{
    PyObject *begin = PyCFunction_NewEx(&begin_method, capsule, NULL);
    PyObject *end = PyCFunction_NewEx(&end_method, capsule, NULL);
    PyObject *close = PyCFunction_NewEx(&close_method, capsule, NULL);
    PyObject *all = begin == NULL || end == NULL || close == NULL ? NULL : PyTuple_Pack(3, begin, end, close);
    Py_XDECREF(begin);
    Py_XDECREF(end);
    Py_XDECREF(close);
    return all;
}

PyObject *open_syncer(PyObject *Py_UNUSED(module), PyObject *wake)
{
    int descriptor = (int)PyLong_AsLong(wake);
    if (descriptor == -1 && PyErr_Occurred())
        return NULL;
    syncer *one = calloc(1, sizeof *one);
    if (one == NULL)
        return PyErr_NoMemory();
    one->wake = descriptor;
    one->process = getpid();
    pthread_mutex_init(&one->lock, NULL);
    pthread_cond_init(&one->changed, NULL);
    int error = start_thread(one);
    if (error != 0) {
        free(one);
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    PyObject *capsule = PyCapsule_New(one, NAME, destroy);
    if (capsule == NULL) {
        stop(one); /* does not wait, because no round has begun */
        free(one);
        return NULL;
    }
    PyObject *methods = methods_of(capsule);
    Py_DECREF(capsule);
    return methods;
}
