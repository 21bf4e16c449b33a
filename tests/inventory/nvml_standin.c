/* A stand-in for libnvidia-ml.so.1: answers as the scenario file in $NVML_SCENARIO says. Built by the tests.
 *
 * Layouts of structures and numbers of errors are those of the NVML API. Lines of a scenario:
 *   gpus N | product NAME | driver V | cuda N | links N | pci_bus N | fabric CLUSTER-BYTE CLIQUE STATE
 *   init CODE                      nvmlInit fails
 *   mig GPU PROFILE GI CI SLICES MIB   one MIG device
 *   error FUNCTION GPU CODE        a call fails (GPU -1: on every GPU)
 *   link GPU LINK                  the link is down
 *   hang FUNCTION GPU              a call never returns
 *   sleep FUNCTION GPU SECONDS     a call takes so long
 *   set NAME GPU NUMBER            a reading of a GPU (-1: of every GPU); the names are at their functions below
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
#define SLEEP 100000
#define MAX_GPUS 16

typedef struct { int gpu; int mig; } Device;
typedef struct { char function[64]; int gpu; int code; } Rule;
typedef struct { int gpu, gi, ci, slices, mib; char profile[32]; } Mig;
typedef struct { int gpu, link; } Down;
typedef struct { char name[32]; int gpu; long long number; } Set;

static struct {
    int gpus, cuda, links, bus, init, fabric_byte, fabric_clique, fabric_state, rules, migs, downs, sets;
    char product[96], driver[80];
    Rule rule[MAX_RULES];
    Mig mig[MAX_RULES];
    Down down[MAX_RULES];
    Set set[MAX_RULES];
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
        Set *v = &S.set[S.sets];
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
        else if (!strcmp(key, "set")) { sscanf(line, "%*s %31s %d %lli", v->name, &v->gpu, &v->number); S.sets++; }
        else if (!strcmp(key, "sleep")) { sscanf(line, "%*s %63s %d %d", r->function, &r->gpu, &r->code); r->code += SLEEP; S.rules++; }
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
            if (S.rule[i].code >= SLEEP) { sleep(S.rule[i].code - SLEEP); continue; }
            return S.rule[i].code;
        }
    }
    return OK;
}

/* A reading that the scenario sets, or `normal`. */
static long long value(const char *name, int gpu, long long normal) {
    for (int i = 0; i < S.sets; i++)
        if (!strcmp(S.set[i].name, name) && (S.set[i].gpu < 0 || S.set[i].gpu == gpu)) return S.set[i].number;
    return normal;
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
DEV(nvmlDeviceGetPciInfo_v3, Pci *out) { CHECK(d->gpu); address(out, value("bus", d->gpu, S.bus + d->gpu)); return OK; }
DEV(nvmlDeviceGetName, char *out, unsigned n) {
    CHECK(d->gpu);
    if (d->mig >= 0) snprintf(out, n, "%s MIG %s", S.product, S.mig[d->mig].profile);
    else snprintf(out, n, "%s", S.product);
    return OK;
}
DEV(nvmlDeviceGetUUID, char *out, unsigned n) {
    CHECK(d->gpu);
    if (d->mig >= 0) snprintf(out, n, "MIG-%08d-0000-0000-0000-%012d", d->gpu, d->mig);
    else snprintf(out, n, "GPU-%08d-0000-0000-0000-000000000000", (int)value("uuid", d->gpu, d->gpu));
    return OK;
}
DEV(nvmlDeviceGetSerial, char *out, unsigned n) { CHECK(d->gpu); snprintf(out, n, "165262300%04d", d->gpu); return OK; }
DEV(nvmlDeviceGetBoardPartNumber, char *out, unsigned n) { CHECK(d->gpu); snprintf(out, n, "692-2G520-0200-000"); return OK; }
DEV(nvmlDeviceGetCudaComputeCapability, int *major, int *minor) { CHECK(d->gpu); *major = 9; *minor = 0; return OK; }
DEV(nvmlDeviceGetMemoryInfo, unsigned long long *out) { CHECK(d->gpu); out[0] = 85520809984ULL; out[1] = out[2] = 0; return OK; }
DEV(nvmlDeviceGetVbiosVersion, char *out, unsigned n) { CHECK(d->gpu); snprintf(out, n, "96.00.A5.00.01"); return OK; }
DEV(nvmlDeviceGetInforomImageVersion, char *out, unsigned n) { CHECK(d->gpu); snprintf(out, n, "G520.0200.00.05"); return OK; }
DEV(nvmlDeviceGetGspFirmwareVersion, char *out) { CHECK(d->gpu); strcpy(out, S.driver); return OK; }
DEV(nvmlDeviceGetEccMode, int *now, int *pending) { CHECK(d->gpu); *now = 1; *pending = value("ecc_pending", d->gpu, 1); return OK; }
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
DEV(nvmlDeviceGetPersistenceMode, int *out) { CHECK(d->gpu); *out = value("persistence", d->gpu, 1); return OK; }
DEV(nvmlDeviceGetPowerManagementLimit, unsigned *out) { CHECK(d->gpu); *out = 700000; return OK; }
DEV(nvmlDeviceGetMaxPcieLinkGeneration, unsigned *out) { CHECK(d->gpu); *out = value("max_gen", d->gpu, 5); return OK; }
DEV(nvmlDeviceGetMaxPcieLinkWidth, unsigned *out) { CHECK(d->gpu); *out = value("max_width", d->gpu, 16); return OK; }
DEV(nvmlDeviceGetCurrPcieLinkGeneration, unsigned *out) { CHECK(d->gpu); *out = value("gen", d->gpu, 1 + getpid() % 5); return OK; }
DEV(nvmlDeviceGetCurrPcieLinkWidth, unsigned *out) { CHECK(d->gpu); *out = value("width", d->gpu, 16); return OK; }
typedef struct { unsigned version; unsigned char cluster[16]; int status; unsigned clique; unsigned char state; unsigned health; } Fabric;
DEV(nvmlDeviceGetGpuFabricInfoV, Fabric *out) {
    CHECK(d->gpu);
    if (out->version != 0x02000024) return 25;
    memset(out->cluster, S.fabric_byte, sizeof out->cluster);
    out->status = value("fabric_status", d->gpu, OK);
    out->clique = S.fabric_clique;
    out->state = value("fabric_state", d->gpu, S.fabric_state);
    out->health = value("fabric_health", d->gpu, 0x2);
    return OK;
}
DEV(nvmlDeviceGetRemappedRows, unsigned *a, unsigned *b, unsigned *c, unsigned *e) { CHECK(d->gpu); *a = 0; *b = 1; *c = value("remap_pending", d->gpu, 0); *e = value("remap_failed", d->gpu, 0); return OK; }
DEV(nvmlDeviceGetRetiredPages, int cause, unsigned *count, unsigned long long *out) { (void)cause; (void)count; (void)out; CHECK(d->gpu); return NOT_SUPPORTED; }
DEV(nvmlDeviceGetTemperature, int sensor, unsigned *out) { (void)sensor; CHECK(d->gpu); *out = value("temperature", d->gpu, 30 + getpid() % 40); return OK; }
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

/* What the agent's sampler asks beside. */
DEV(nvmlDeviceGetTotalEccErrors, int kind, int counter, unsigned long long *out) {
    (void)counter; CHECK(d->gpu);
    *out = value(kind ? "ecc_uncorrected" : "ecc_corrected", d->gpu, 0);
    return OK;
}
typedef struct { unsigned version; unsigned long long parity, secded, corrected, v_parity, v_secded, v_corrected, bucket[5]; unsigned exceeded; } Sram;
DEV(nvmlDeviceGetSramEccErrorStatus, Sram *out) {
    CHECK(d->gpu);
    if (out->version != (sizeof *out | 1u << 24)) return 25;
    out->parity = out->secded = 7;
    out->v_parity = value("sram_parity", d->gpu, 0);
    out->v_secded = value("sram_secded", d->gpu, 0);
    out->exceeded = value("sram_threshold", d->gpu, 0);
    return OK;
}
DEV(nvmlDeviceGetRetiredPagesPendingStatus, unsigned *out) {
    CHECK(d->gpu);
    long long pending = value("pages_pending", d->gpu, -1);
    if (pending < 0) return NOT_SUPPORTED;
    *out = pending;
    return OK;
}
DEV(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long *out) { CHECK(d->gpu); *out = value("throttle", d->gpu, 1); return OK; }
typedef struct { unsigned version; int margin; } Margin;
DEV(nvmlDeviceGetMarginTemperature, Margin *out) {
    CHECK(d->gpu);
    if (out->version != (sizeof *out | 1u << 24)) return 25;
    long long margin = value("margin", d->gpu, -1000);
    if (margin == -1000) return NOT_SUPPORTED;
    out->margin = margin;
    return OK;
}
DEV(nvmlDeviceGetTemperatureThreshold, int kind, unsigned *out) { (void)kind; CHECK(d->gpu); *out = value("slowdown", d->gpu, 92); return OK; }
DEV(nvmlDeviceGetPcieReplayCounter, unsigned *out) { CHECK(d->gpu); *out = value("replays", d->gpu, 0); return OK; }
DEV(nvmlDeviceGetUtilizationRates, unsigned *out) { CHECK(d->gpu); out[0] = value("busy", d->gpu, 0); out[1] = 0; return OK; }
DEV(nvmlDeviceValidateInforom) { CHECK(d->gpu); return value("inforom", d->gpu, 0); }
typedef struct { unsigned id, scope; long long at, latency; unsigned kind, result; union { double d; unsigned u; unsigned long long q; } value; } Field;
DEV(nvmlDeviceGetFieldValues, int count, Field *out) {
    CHECK(d->gpu);
    for (int i = 0; i < count; i++) {
        const char *name = NULL;
        switch (out[i].id) {
        case 161: name = "replay"; break;
        case 162: name = "recovery"; break;
        case 163: name = "crc"; break;
        case 219: name = "effective_errors"; break;
        case 220: name = "effective_ber"; break;
        case 230: name = "action"; break;
        }
        long long found = name ? value(name, d->gpu, out[i].id == 230 ? 0 : -1) : -1;
        out[i].result = found < 0 ? NOT_SUPPORTED : OK;
        out[i].kind = out[i].id == 230 ? 1 : 3;
        out[i].value.q = 0;
        if (out[i].kind == 1) out[i].value.u = found; else out[i].value.q = found;
    }
    return OK;
}
DEV(nvmlDeviceGetNvLinkErrorCounter, unsigned link, unsigned counter, unsigned long long *out) {
    static const char *const names[] = {"old_replay", "old_recovery", "old_crc", "old_crc_data"};
    (void)link; CHECK(d->gpu);
    long long found = counter < 4 ? value(names[counter], d->gpu, -1) : -1;
    if (found < 0) return NOT_SUPPORTED;
    *out = found;
    return OK;
}
