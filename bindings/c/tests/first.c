// A first program: takes a slot of a bucket and gives it back. It needs a table, as of `sluice sandbox`.

#include "sluice.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// An answer that another thread tells.
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t came;
    SluiceAnswer *answer;
} Wait;

static void done(uintptr_t context, SluiceAnswer *answer) {
    Wait *wait = (Wait *)context;
    pthread_mutex_lock(&wait->lock);
    wait->answer = answer;
    pthread_cond_signal(&wait->came);
    pthread_mutex_unlock(&wait->lock);
}

static SluiceAnswer *checked(SluiceAnswer *answer) {
    uintptr_t length = 0;
    const char *failure = sluice_answer_failure(answer, &length);
    if (failure != NULL) {
        fprintf(stderr, "%.*s\n", (int)length, failure);
        exit(1);
    }
    return answer;
}

static SluiceAnswer *call(const SluiceTarget *target, const char *name, const char *args) {
    Wait wait = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL};
    SluiceAnswer *ready = NULL;
    SluiceOperation *operation =
        sluice_call(target, name, strlen(name), args, strlen(args), NULL, 0, done, (uintptr_t)&wait, 0, &ready);
    if (operation == NULL) {
        return checked(ready);
    }
    pthread_mutex_lock(&wait.lock);
    while (wait.answer == NULL) {
        pthread_cond_wait(&wait.came, &wait.lock);
    }
    pthread_mutex_unlock(&wait.lock);
    sluice_operation_free(operation);
    return checked(wait.answer);
}

static void told(const char *what, SluiceAnswer *answer) {
    uintptr_t length = 0;
    const char *value = sluice_answer_value(answer, &length);
    printf("%s: %.*s\n", what, (int)length, value);
    sluice_answer_free(answer);
}

int main(void) {
    SluiceAnswer *made = checked(sluice_client("{}", 2));
    SluiceTarget *client = sluice_answer_made(made);
    sluice_answer_free(made);

    told("declared", call(client, "ops.applyLimit",
                          "{\"dimension\": \"c#concurrent\", \"limit\": {\"type\": \"concurrent\", \"capacity\": 1}}"));
    SluiceAnswer *answer = call(client, "acquire", "{\"dimensions\": [\"c#concurrent\"]}");
    SluiceTarget *grant = sluice_answer_made(answer);
    sluice_answer_free(answer);
    if (grant == NULL) {
        fprintf(stderr, "refused\n");
        return 1;
    }
    told("second", call(client, "acquire", "{\"dimensions\": [\"c#concurrent\"]}"));
    told("released", call(grant, "release", "{}"));
    sluice_target_free(grant);
    told("closed", call(client, "close", "{\"withinMs\": 2000}"));
    sluice_target_free(client);
    return 0;
}
