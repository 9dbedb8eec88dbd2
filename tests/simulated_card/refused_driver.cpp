// Functions of libcuda that CuPy looks up but the card does not model; each fails with its name.
extern "C" int card_refuse(const char* name);

#define REFUSE(name)                                                   \
    extern "C" __attribute__((visibility("default"))) int name() { \
        return card_refuse(#name);                                     \
    }

REFUSE(cuDevicePrimaryCtxRelease_v2)
REFUSE(cuCtxCreate_v2)
REFUSE(cuCtxDestroy_v2)
REFUSE(cuLinkCreate_v2)
REFUSE(cuLinkAddData_v2)
REFUSE(cuLinkAddFile_v2)
REFUSE(cuLinkComplete)
REFUSE(cuLinkDestroy)
REFUSE(cuModuleLoad)
REFUSE(cuModuleGetGlobal_v2)
REFUSE(cuLaunchCooperativeKernel)
REFUSE(cuFuncSetAttribute)
REFUSE(cuOccupancyMaxActiveBlocksPerMultiprocessor)
REFUSE(cuOccupancyMaxPotentialBlockSize)
