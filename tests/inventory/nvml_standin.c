/* A stand-in for libnvidia-ml.so.1: answers as the scenario file in $NVML_SCENARIO says. Built by the tests.
 *
 * Layouts of structures and numbers of errors are those of the NVML API. Lines of a scenario:
 *   gpus N | product NAME | driver V | cuda N | links N | pci_bus N | fabric CLUSTER-BYTE CLIQUE STATE
 *   init CODE                      nvmlInit fails
 *   mig GPU PROFILE GI CI SLICES MIB   one MIG device
 *   error FUNCTION GPU CODE        a call fails (GPU -1: on every GPU)
 *   link GPU LINK                  the link is down
 *   hang FUNCTION GPU              a call never returns
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK 0
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define MAX_RULES 64
#define MAX_GPUS 16

typedef struct { int gpu; int mig; } Device;
typedef struct { char function[64]; int gpu; int code; } Rule;
typedef struct { int gpu, gi, ci, slices, mib; char profile[32]; } Mig;
typedef struct { int gpu, link; } Down;

static struct {
    int gpus, cuda, links, bus, init, fabric_byte, fabric_clique, fabric_state, rules, migs, downs;
    char product[96], driver[80];
    Rule rule[MAX_RULES];
    Mig mig[MAX_RULES];
    Down down[MAX_RULES];
} S;
static Device devices[MAX_GPUS], mig_devices[MAX_RULES];

static void load(void) {
    char line[256], key[32];
    FILE *file = fopen(getenv("NVML_SCENARIO") ? getenv("NVML_SCENARIO") : "/nonexistent", "r");
    memset(&S, 0, sizeof S);
    S.cuda = 13000;
    S.bus = 0x10;
    strcpy(S.product, "NVIDIA H100 80GB HBM3");
    strcpy(S.driver, "580.95.05");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        Rule *r = &S.rule[S.rules];
        Mig *m = &S.mig[S.migs];
        Down *d = &S.down[S.downs];
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%31s", key) != 1) continue;
        if (!strcmp(key, "gpus")) sscanf(line, "%*s %d", &S.gpus);
        else if (!strcmp(key, "product")) snprintf(S.product, sizeof S.product, "%.95s", line + 8);
        else if (!strcmp(key, "driver")) sscanf(line, "%*s %79s", S.driver);
        else if (!strcmp(key, "cuda")) sscanf(line, "%*s %d", &S.cuda);
        else if (!strcmp(key, "links")) sscanf(line, "%*s %d", &S.links);
        else if (!strcmp(key, "pci_bus")) sscanf(line, "%*s %d", &S.bus);
        else if (!strcmp(key, "init")) sscanf(line, "%*s %d", &S.init);
        else if (!strcmp(key, "fabric")) sscanf(line, "%*s %d %d %d", &S.fabric_byte, &S.fabric_clique, &S.fabric_state);
        else if (!strcmp(key, "link")) { sscanf(line, "%*s %d %d", &d->gpu, &d->link); S.downs++; }
        else if (!strcmp(key, "error")) { sscanf(line, "%*s %63s %d %d", r->function, &r->gpu, &r->code); S.rules++; }
        else if (!strcmp(key, "hang")) { sscanf(line, "%*s %63s %d", r->function, &r->gpu); r->code = -1; S.rules++; }
        else if (!strcmp(key, "mig")) {
            sscanf(line, "%*s %d %31s %d %d %d %d", &m->gpu, m->profile, &m->gi, &m->ci, &m->slices, &m->mib);
            S.migs++;
        }
    }
    fclose(file);
}

static int rule(const char *function, int gpu) {
    for (int i = 0; i < S.rules; i++) {
        int everything = !strcmp(S.rule[i].function, "*");
        if ((everything || !strcmp(S.rule[i].function, function)) && (S.rule[i].gpu < 0 || S.rule[i].gpu == gpu)) {
            if (S.rule[i].code < 0) for (;;) pause();
            return S.rule[i].code;
        }
    }
    return OK;
}

#define CHECK(gpu) do { int code = rule(__func__, gpu); if (code) return code; } while (0)
#define DEV(name, ...) int name(Device *d, ##__VA_ARGS__)

int nvmlInitWithFlags(unsigned flags) { (void)flags; load(); CHECK(-2); return S.init; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int code) {
    switch (code) {
    case 2: return "Invalid Argument";
    case 3: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case 9: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}
int nvmlSystemGetDriverVersion(char *out, unsigned n) { CHECK(-2); snprintf(out, n, "%s", S.driver); return OK; }
int nvmlSystemGetNVMLVersion(char *out, unsigned n) { CHECK(-2); snprintf(out, n, "13.%s", S.driver); return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *out) { CHECK(-2); *out = S.cuda; return OK; }
int nvmlDeviceGetCount_v2(unsigned *out) { CHECK(-2); *out = S.gpus; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, Device **out) {
    CHECK((int)i);
    devices[i].gpu = i; devices[i].mig = -1; *out = &devices[i];
    return OK;
}

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char busId[32]; } Pci;
static void address(Pci *out, int bus) {
    memset(out, 0, sizeof *out);
    out->bus = bus;
    snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", bus);
    snprintf(out->busId, sizeof out->busId, "00000000:%02X:00.0", bus);
}
DEV(nvmlDeviceGetPciInfo_v3, Pci *out) { CHECK(d->gpu); address(out, S.bus + d->gpu); return OK; }
DEV(nvmlDeviceGetName, char *out, unsigned n) {
    CHECK(d->gpu);
    if (d->mig >= 0) snprintf(out, n, "%s MIG %s", S.product, S.mig[d->mig].profile);
    else snprintf(out, n, "%s", S.product);
    return OK;
}
DEV(nvmlDeviceGetUUID, char *out, unsigned n) {
    CHECK(d->gpu);
    if (d->mig >= 0) snprintf(out, n, "MIG-%08d-0000-0000-0000-%012d", d->gpu, d->mig);
    else snprintf(out, n, "GPU-%08d-0000-0000-0000-000000000000", d->gpu);
    return OK;
}
DEV(nvmlDeviceGetSerial, char *out, unsigned n) { CHECK(d->gpu); snprintf(out, n, "165262300%04d", d->gpu); return OK; }
DEV(nvmlDeviceGetBoardPartNumber, char *out, unsigned n) { CHECK(d->gpu); snprintf(out, n, "692-2G520-0200-000"); return OK; }
DEV(nvmlDeviceGetCudaComputeCapability, int *major, int *minor) { CHECK(d->gpu); *major = 9; *minor = 0; return OK; }
DEV(nvmlDeviceGetMemoryInfo, unsigned long long *out) { CHECK(d->gpu); out[0] = 85520809984ULL; out[1] = out[2] = 0; return OK; }
DEV(nvmlDeviceGetVbiosVersion, char *out, unsigned n) { CHECK(d->gpu); snprintf(out, n, "96.00.A5.00.01"); return OK; }
DEV(nvmlDeviceGetInforomImageVersion, char *out, unsigned n) { CHECK(d->gpu); snprintf(out, n, "G520.0200.00.05"); return OK; }
DEV(nvmlDeviceGetGspFirmwareVersion, char *out) { CHECK(d->gpu); strcpy(out, S.driver); return OK; }
DEV(nvmlDeviceGetEccMode, int *now, int *pending) { CHECK(d->gpu); *now = *pending = 1; return OK; }
static int has_mig(int gpu) { for (int i = 0; i < S.migs; i++) if (S.mig[i].gpu == gpu) return 1; return 0; }
DEV(nvmlDeviceGetMigMode, unsigned *now, unsigned *pending) { CHECK(d->gpu); *now = *pending = has_mig(d->gpu); return OK; }
DEV(nvmlDeviceGetMaxMigDeviceCount, unsigned *out) { CHECK(d->gpu); *out = 7; return OK; }
DEV(nvmlDeviceGetMigDeviceHandleByIndex, unsigned index, Device **out) {
    CHECK(d->gpu);
    for (int i = 0; i < S.migs; i++) {
        if (S.mig[i].gpu == d->gpu && index-- == 0) {
            mig_devices[i].gpu = d->gpu; mig_devices[i].mig = i; *out = &mig_devices[i];
            return OK;
        }
    }
    return NOT_FOUND;
}
DEV(nvmlDeviceGetGpuInstanceId, unsigned *out) { CHECK(d->gpu); *out = S.mig[d->mig].gi; return OK; }
DEV(nvmlDeviceGetComputeInstanceId, unsigned *out) { CHECK(d->gpu); *out = S.mig[d->mig].ci; return OK; }
typedef struct { unsigned sm, ce, dec, enc, jpeg, ofa, gi, ci; unsigned long long mib; } Attributes;
DEV(nvmlDeviceGetAttributes_v2, Attributes *out) {
    CHECK(d->gpu);
    memset(out, 0, sizeof *out);
    out->gi = out->ci = S.mig[d->mig].slices;
    out->mib = S.mig[d->mig].mib;
    return OK;
}
DEV(nvmlDeviceGetComputeMode, int *out) { CHECK(d->gpu); *out = 0; return OK; }
DEV(nvmlDeviceGetPersistenceMode, int *out) { CHECK(d->gpu); *out = 1; return OK; }
DEV(nvmlDeviceGetPowerManagementLimit, unsigned *out) { CHECK(d->gpu); *out = 700000; return OK; }
DEV(nvmlDeviceGetMaxPcieLinkGeneration, unsigned *out) { CHECK(d->gpu); *out = 5; return OK; }
DEV(nvmlDeviceGetMaxPcieLinkWidth, unsigned *out) { CHECK(d->gpu); *out = 16; return OK; }
DEV(nvmlDeviceGetCurrPcieLinkGeneration, unsigned *out) { CHECK(d->gpu); *out = 1 + getpid() % 5; return OK; }
DEV(nvmlDeviceGetCurrPcieLinkWidth, unsigned *out) { CHECK(d->gpu); *out = 16; return OK; }
typedef struct { unsigned version; unsigned char cluster[16]; int status; unsigned clique; unsigned char state; unsigned health; } Fabric;
DEV(nvmlDeviceGetGpuFabricInfoV, Fabric *out) {
    CHECK(d->gpu);
    if (out->version != 0x02000024) return 25;
    memset(out->cluster, S.fabric_byte, sizeof out->cluster);
    out->status = OK; out->clique = S.fabric_clique; out->state = S.fabric_state; out->health = 0x2;
    return OK;
}
DEV(nvmlDeviceGetRemappedRows, unsigned *a, unsigned *b, unsigned *c, unsigned *e) { CHECK(d->gpu); *a = 0; *b = 1; *c = 0; *e = 0; return OK; }
DEV(nvmlDeviceGetRetiredPages, int cause, unsigned *count, unsigned long long *out) { (void)cause; (void)count; (void)out; CHECK(d->gpu); return NOT_SUPPORTED; }
DEV(nvmlDeviceGetTemperature, int sensor, unsigned *out) { (void)sensor; CHECK(d->gpu); *out = 30 + getpid() % 40; return OK; }
DEV(nvmlDeviceGetPowerUsage, unsigned *out) { CHECK(d->gpu); *out = 70000 + getpid() % 5000; return OK; }
DEV(nvmlDeviceGetPerformanceState, int *out) { CHECK(d->gpu); *out = 0; return OK; }
DEV(nvmlDeviceGetNvLinkState, unsigned link, unsigned *out) {
    CHECK(d->gpu);
    if ((int)link >= S.links) return S.links ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *out = 1;
    for (int i = 0; i < S.downs; i++) if (S.down[i].gpu == d->gpu && S.down[i].link == (int)link) *out = 0;
    return OK;
}
DEV(nvmlDeviceGetNvLinkVersion, unsigned link, unsigned *out) { (void)link; CHECK(d->gpu); *out = 4; return OK; }
DEV(nvmlDeviceGetNvLinkRemoteDeviceType, unsigned link, int *out) { (void)link; CHECK(d->gpu); *out = 2; return OK; }
DEV(nvmlDeviceGetNvLinkRemotePciInfo_v2, unsigned link, Pci *out) { CHECK(d->gpu); address(out, 0x80 + link % 4); return OK; }
