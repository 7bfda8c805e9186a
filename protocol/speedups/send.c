/* Sends many small responses on a thread of its own while the loop continues: most of the cost of a small response is
 * the kernel's work, which needs no interpreter. The thread that waits for the end sends some of the rest itself. */
#include "speedups.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* Python ignores SIGPIPE */
#endif

/* `owner` is the object that holds `bytes`: a reference of its own, so that the bytes outlive a change of the dict. */
typedef struct {
    int descriptor;
    PyObject *owner;
    const char *bytes;
    Py_ssize_t size, sent;
} answer;

/* One batch at a time, for all loops of the process. Both threads take one response at a time by `next`, so that
 * neither waits for the other for longer than one `send` takes, and the loop never waits for a sender that has not
 * started. */
#define NOTHING_BEGUN                                                                                                 \
    {.lock = PTHREAD_MUTEX_INITIALIZER, .begun = PTHREAD_COND_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER}
static struct batch {
    pthread_mutex_t lock;
    pthread_cond_t begun, ended;
    PyObject *owner; /* the dict of the batch; the thread that set it may use the next two */
    answer *answers;
    Py_ssize_t count, next;
    int is_new, sender_exists, sender_works;
} batch = NOTHING_BEGUN;

static void send_one(answer *one)
{
    ssize_t sent;
    do
        sent = send(one->descriptor, one->bytes, (size_t)one->size, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    one->sent = sent < 0 ? 0 : sent;
}

static void send_in_turn(void)
{
    Py_ssize_t index;
    while ((index = __atomic_fetch_add(&batch.next, 1, __ATOMIC_RELAXED)) < batch.count)
        send_one(batch.answers + index);
}

static void *be_the_sender(void *unused)
{
    pthread_mutex_lock(&batch.lock);
    for (;;) {
        while (!batch.is_new)
            pthread_cond_wait(&batch.begun, &batch.lock);
        batch.is_new = 0;
        batch.sender_works = 1;
        pthread_mutex_unlock(&batch.lock);
        send_in_turn();
        pthread_mutex_lock(&batch.lock);
        batch.sender_works = 0;
        pthread_cond_signal(&batch.ended);
    }
    return unused;
}

/* A forked process has no sender yet; the sender of its parent remains with the parent and its batch. */
static void begin_anew(void) { batch = (struct batch)NOTHING_BEGUN; }

/* Block signals, which are for Python's threads. Without a sender the loop's thread sends everything itself. */
static void start_sender(void)
{
    static int forks_are_watched;
    if (!forks_are_watched)
        forks_are_watched = pthread_atfork(NULL, NULL, begin_anew) == 0;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, be_the_sender, NULL) == 0)
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    batch.sender_exists = 1;
}

static void free_answers(answer *answers, Py_ssize_t count)
{
    for (answer *one = answers; one < answers + count; one++)
        Py_DECREF(one->owner);
    free(answers);
}

/* Return the responses of a dict, for `free_answers`; NULL with an exception. */
static answer *answers_of(PyObject *dict, Py_ssize_t *count)
{
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "answers are a dict");
        return NULL;
    }
    answer *answers = malloc((size_t)PyDict_Size(dict) * sizeof *answers + 1);
    if (answers == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    PyObject *descriptor, *bytes;
    Py_ssize_t position = 0;
    *count = 0;
    while (PyDict_Next(dict, &position, &descriptor, &bytes)) {
        answer *one = answers + *count;
        /* Only an int: __index__ of another type could change the dict while it is iterated. */
        long number = PyLong_Check(descriptor) ? PyLong_AsLong(descriptor) : -1;
        if (number < 0 || number > INT_MAX || PyBytes_AsStringAndSize(bytes, (char **)&one->bytes, &one->size) < 0) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "answers: keys must be file descriptors");
            free_answers(answers, *count);
            return NULL;
        }
        one->descriptor = (int)number;
        one->owner = Py_NewRef(bytes);
        one->sent = 0;
        ++*count;
    }
    return answers;
}

static PyObject *unsent_of(const answer *answers, Py_ssize_t count)
{
    PyObject *unsent = PyList_New(0);
    for (const answer *one = answers; unsent != NULL && one < answers + count; one++) {
        if (one->sent == one->size)
            continue;
        PyObject *item = Py_BuildValue("in", one->descriptor, one->sent);
        if (item == NULL || PyList_Append(unsent, item) < 0)
            Py_CLEAR(unsent);
        Py_XDECREF(item);
    }
    return unsent;
}

PyObject *begin_sending(PyObject *Py_UNUSED(module), PyObject *dict)
{
    PyObject *nobody = NULL;
    if (!__atomic_compare_exchange_n(&batch.owner, &nobody, dict, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        Py_RETURN_NONE;
    batch.answers = answers_of(dict, &batch.count);
    if (batch.answers == NULL) {
        __atomic_store_n(&batch.owner, NULL, __ATOMIC_RELEASE);
        return NULL;
    }
    Py_INCREF(dict);
    pthread_mutex_lock(&batch.lock);
    if (!batch.sender_exists)
        start_sender();
    batch.next = 0;
    batch.is_new = 1;
    pthread_cond_signal(&batch.begun);
    pthread_mutex_unlock(&batch.lock);
    Py_RETURN_NONE;
}

static PyObject *finish_begun(PyObject *dict)
{
    Py_BEGIN_ALLOW_THREADS
    send_in_turn();
    pthread_mutex_lock(&batch.lock);
    batch.is_new = 0;
    while (batch.sender_works)
        pthread_cond_wait(&batch.ended, &batch.lock);
    pthread_mutex_unlock(&batch.lock);
    Py_END_ALLOW_THREADS
    PyObject *unsent = unsent_of(batch.answers, batch.count);
    free_answers(batch.answers, batch.count);
    __atomic_store_n(&batch.owner, NULL, __ATOMIC_RELEASE);
    Py_DECREF(dict);
    return unsent;
}

PyObject *finish_sending(PyObject *Py_UNUSED(module), PyObject *dict)
{
    if (dict == __atomic_load_n(&batch.owner, __ATOMIC_RELAXED))
        return finish_begun(dict);
    Py_ssize_t count;
    answer *answers = answers_of(dict, &count);
    if (answers == NULL)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (answer *one = answers; one < answers + count; one++)
        send_one(one);
    Py_END_ALLOW_THREADS
    PyObject *unsent = unsent_of(answers, count);
    free_answers(answers, count);
    return unsent;
}

PyObject *is_sending(PyObject *Py_UNUSED(module), PyObject *dict)
{
    if (dict != __atomic_load_n(&batch.owner, __ATOMIC_RELAXED))
        Py_RETURN_FALSE;
    pthread_mutex_lock(&batch.lock);
    int is_unfinished = batch.is_new || batch.sender_works;
    pthread_mutex_unlock(&batch.lock);
    return PyBool_FromLong(is_unfinished);
}
