/* A driver's library with two GPUs, for the tests: values are fixed, failures are set with fake_fail(). */
#include <stdio.h>
#include <string.h>

typedef struct {
    const char *name, *uuid;
    int percent, memory_percent, milliwatts, celsius, fan, mhz[3];
    unsigned long long total, reserved, used, reasons;
} Gpu;
typedef struct { unsigned int pid; unsigned long long bytes; unsigned int instance, compute_instance; } Process;
typedef struct { unsigned int percent, memory_percent; } Rates;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct { unsigned int version, sensor; int celsius; } Temperature;
typedef struct { int gpu; char call[64]; int code; } Failure;

enum { GPUS = 2, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7, VERSION_MISMATCH = 25, WHOLE = -1, MAX_CALLS = 4096 };
#define GIB (1ULL << 30)
#define UNKNOWN_BYTES (~0ULL)
#define NO_MIG (~0U)

static Gpu gpus[GPUS] = {
    {"Fake A100", "GPU-aaaa", 97, 41, 251500, 71, 55, {1410, 1400, 1593}, 40 * GIB, GIB, 30 * GIB, 0x4 | 0x20},
    {"Fake T4", "GPU-bbbb", 3, 1, 9250, 34, 0, {300, 305, 405}, 16 * GIB, GIB, 2 * GIB, 0x1},
};
static Process computing[GPUS][3] = {
    {{100, 20 * GIB, NO_MIG, NO_MIG}, {200, 5 * GIB, NO_MIG, NO_MIG}, {300, UNKNOWN_BYTES, NO_MIG, NO_MIG}},
    {{100, GIB, 1, 0}, {100, GIB, 2, 0}, {400, UNKNOWN_BYTES, 1, 0}},
};
static Process drawing[GPUS][1] = {{{200, 5 * GIB, NO_MIG, NO_MIG}}, {{400, GIB, 2, 0}}};

static Failure failures[64];
static int failure_count, order[GPUS] = {0, 1}, starts;
static char calls[MAX_CALLS][64], driver_version[32] = "580.65.06";
static int call_count;

/* What the tests turn. */
void fake_fail(int gpu, const char *call, int code) {
    Failure *failure = &failures[failure_count++];
    failure->gpu = gpu;
    failure->code = code;
    snprintf(failure->call, sizeof failure->call, "%s", call);
}
void fake_heal(void) { failure_count = 0; }
void fake_swap(void) { order[0] = !order[0], order[1] = !order[1]; }
void fake_name(int gpu, const char *name) { gpus[gpu].name = name; }
void fake_driver(const char *version) { snprintf(driver_version, sizeof driver_version, "%s", version); }
void fake_unload(void) { starts = 0; } /* from now on nobody has started it */
int fake_starts(void) { return starts; }
int fake_calls(int gpu, const char *call) {
    char entry[64];
    int count = 0;
    snprintf(entry, sizeof entry, "%d %s", gpu, call);
    for (int i = 0; i < call_count; i++) count += !strcmp(calls[i], entry);
    return count;
}

static int answer(Gpu *gpu, const char *call) {
    int index = gpu ? (int)(gpu - gpus) : WHOLE;
    if (call_count < MAX_CALLS) snprintf(calls[call_count++], sizeof calls[0], "%d %s", index, call);
    for (int i = failure_count - 1; i >= 0; i--) /* the last word counts */
        if (failures[i].gpu == index && (!strcmp(failures[i].call, call) || !strcmp(failures[i].call, "*")))
            return failures[i].code;
    return starts > 0 || !strncmp(call, "nvmlInit", 8) ? 0 : 1;
}
#define ASK(gpu) do { int code = answer(gpu, __func__); if (code) return code; } while (0)

static int list(Process *from, unsigned int count, unsigned int *room, Process *to) {
    unsigned int had = *room;
    *room = count;
    if (had < count) return INSUFFICIENT_SIZE;
    memcpy(to, from, count * sizeof *from);
    return 0;
}

int nvmlInitWithFlags(unsigned int flags) { (void)flags; ASK(NULL); starts++; return 0; }
int nvmlShutdown(void) { ASK(NULL); starts--; return 0; }
const char *nvmlErrorString(int code) { return code == 29 ? "\xff" : "words of the driver"; }
int nvmlSystemGetDriverVersion(char *to, unsigned int size) {
    ASK(NULL);
    snprintf(to, size, "%s", driver_version);
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned int *to) { ASK(NULL); *to = GPUS; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Gpu **to) {
    if (index >= GPUS) return INVALID_ARGUMENT;
    ASK(NULL);
    ASK(&gpus[order[index]]);
    *to = &gpus[order[index]];
    return 0;
}
int nvmlDeviceGetName(Gpu *gpu, char *to, unsigned int size) {
    ASK(gpu);
    snprintf(to, size, "%s", gpu->name);
    return 0;
}
int nvmlDeviceGetUUID(Gpu *gpu, char *to, unsigned int size) {
    ASK(gpu);
    snprintf(to, size, "%s", gpu->uuid);
    return 0;
}
int nvmlDeviceGetUtilizationRates(Gpu *gpu, Rates *to) {
    ASK(gpu);
    *to = (Rates){gpu->percent, gpu->memory_percent};
    return 0;
}
int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *to) { /* the old call counts what the driver reserves as used */
    ASK(gpu);
    *to = (Memory){gpu->total, gpu->total - gpu->reserved - gpu->used, gpu->reserved + gpu->used};
    return 0;
}
int nvmlDeviceGetPowerUsage(Gpu *gpu, unsigned int *to) { ASK(gpu); *to = gpu->milliwatts; return 0; }
int nvmlDeviceGetTemperature(Gpu *gpu, int sensor, unsigned int *to) {
    (void)sensor;
    ASK(gpu);
    *to = gpu->celsius;
    return 0;
}
int nvmlDeviceGetFanSpeed(Gpu *gpu, unsigned int *to) { ASK(gpu); *to = gpu->fan; return 0; }
int nvmlDeviceGetClockInfo(Gpu *gpu, unsigned int kind, unsigned int *to) { ASK(gpu); *to = gpu->mhz[kind]; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(Gpu *gpu, unsigned long long *to) {
    ASK(gpu);
    *to = gpu->reasons;
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v2(Gpu *gpu, unsigned int *room, Process *to) {
    ASK(gpu);
    return list(computing[gpu - gpus], 3, room, to);
}
int nvmlDeviceGetGraphicsRunningProcesses_v2(Gpu *gpu, unsigned int *room, Process *to) {
    ASK(gpu);
    return list(drawing[gpu - gpus], 1, room, to);
}

#ifndef OLD_DRIVER
int nvmlDeviceGetMemoryInfo_v2(Gpu *gpu, MemoryV2 *to) {
    ASK(gpu);
    if (to->version != (sizeof *to | 2 << 24)) return VERSION_MISMATCH;
    *to = (MemoryV2){to->version, gpu->total, gpu->reserved, gpu->total - gpu->reserved - gpu->used, gpu->used};
    return 0;
}
int nvmlDeviceGetTemperatureV(Gpu *gpu, Temperature *to) {
    ASK(gpu);
    if (to->version != (sizeof *to | 1 << 24)) return VERSION_MISMATCH;
    to->celsius = gpu->celsius;
    return 0;
}
int nvmlDeviceGetCurrentClocksEventReasons(Gpu *gpu, unsigned long long *to) { ASK(gpu); *to = gpu->reasons; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *gpu, unsigned int *room, Process *to) {
    ASK(gpu);
    return list(computing[gpu - gpus], 3, room, to);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(Gpu *gpu, unsigned int *room, Process *to) {
    ASK(gpu);
    return list(drawing[gpu - gpus], 1, room, to);
}
#endif
