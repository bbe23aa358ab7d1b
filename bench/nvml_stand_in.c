/* A library with those of NVML's functions that the collector calls, and no GPU behind them. It answers at once, so that
   only the collector's own cost is measured, and none of the driver's.

   NVML_STAND_IN_GPUS    the number of GPUs (8)
   NVML_STAND_IN_PIDS    the processes, `101,102;201`: the GPUs take the groups between `;` in turn
   NVML_STAND_IN_LOST    the number of a GPU that fell off the bus
   NVML_STAND_IN_CALLS   a file to which nvmlShutdown writes the number of calls */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUCCESS 0
#define UNINITIALIZED 1
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7
#define GPU_IS_LOST 15
#define MIB (1024ULL * 1024ULL)

typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } process_t;
typedef struct { unsigned int gpu, memory; } utilization_t;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned int pid; unsigned long long stamp; unsigned int sm, mem, enc, dec; } process_util_t;

static int ready;
static unsigned long long calls;

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

static int answer(void *device) {
    calls++;
    if (!ready) return UNINITIALIZED;
    if (device && (long)device - 1 == number("NVML_STAND_IN_LOST", -1)) return GPU_IS_LOST;
    return SUCCESS;
}

static unsigned int processes(void *device, process_t *into) {
    const char *text = getenv("NVML_STAND_IN_PIDS");
    long groups = 1, wanted, group = 0;
    unsigned int count = 0;
    if (!text || !*text) return 0;
    for (const char *at = text; *at; at++) groups += *at == ';';
    wanted = ((long)device - 1) % groups;
    while (*text) {
        char *end;
        unsigned long pid = strtoul(text, &end, 10);
        if (end != text && group == wanted) {
            if (into) into[count] = (process_t){(unsigned int)pid, 1000 * MIB, 0xffffffff, 0xffffffff};
            count++;
        }
        group += *end == ';';
        text = *end ? end + 1 : end;
    }
    return count;
}

int nvmlInitWithFlags(unsigned int flags) { (void)flags; ready = 1; return answer(0); }

int nvmlShutdown(void) {
    const char *file = getenv("NVML_STAND_IN_CALLS");
    FILE *out = file ? fopen(file, "w") : 0;
    if (out) { fprintf(out, "%llu\n", calls); fclose(out); }
    ready = 0;
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    return code == GPU_IS_LOST ? "GPU is lost" : code == UNINITIALIZED ? "Uninitialized" : "Other";
}

int nvmlDeviceGetCount_v2(unsigned int *count) { *count = (unsigned int)number("NVML_STAND_IN_GPUS", 8); return answer(0); }

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    *device = (void *)(long)(index + 1);
    return answer(*device);
}

int nvmlDeviceGetUUID(void *device, char *into, unsigned int length) {
    snprintf(into, length, "GPU-00000000-0000-0000-0000-%012ld", (long)device - 1);
    return answer(device);
}

int nvmlDeviceGetMigMode(void *device, unsigned int *now, unsigned int *pending) {
    int code = answer(device);
    *now = *pending = 0;
    return code ? code : NOT_SUPPORTED;
}

int nvmlDeviceGetUtilizationRates(void *device, utilization_t *rates) {
    int busy = processes(device, 0) > 0;
    *rates = (utilization_t){busy ? 80 : 0, busy ? 40 : 0};
    return answer(device);
}

int nvmlDeviceGetPowerUsage(void *device, unsigned int *milliwatts) {
    *milliwatts = processes(device, 0) ? 350000 : 60000;
    return answer(device);
}

int nvmlDeviceGetMemoryInfo_v2(void *device, memory_v2_t *memory) {
    memory->total = 80000 * MIB;
    memory->reserved = 500 * MIB;
    memory->used = 2000 * MIB;
    memory->free = memory->total - memory->used - memory->reserved;
    return answer(device);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, process_t *into) {
    int code = answer(device);
    unsigned int found = processes(device, 0), room = *count;
    if (code) return code;
    *count = found;
    if (found > room || (found && !into)) return INSUFFICIENT_SIZE;
    if (found) processes(device, into);
    return SUCCESS;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned int *count, process_t *into) {
    (void)into;
    *count = 0;
    return answer(device);
}

int nvmlDeviceGetProcessUtilization(void *device, process_util_t *into, unsigned int *count, unsigned long long since) {
    int code = answer(device);
    process_t found[64];
    unsigned int number_found = processes(device, 0), room = *count;
    if (code) return code;
    if (!number_found || number_found > 64) return NOT_FOUND;
    *count = number_found;
    if (!into || room < number_found) return INSUFFICIENT_SIZE;
    processes(device, found);
    for (unsigned int n = 0; n < number_found; n++)
        into[n] = (process_util_t){found[n].pid, since + 1, 30, 10, 0, 0};
    return SUCCESS;
}
