// NVRTC's interface: the real compiler checks the source, then g++ compiles it for the host.
//
// CARD_NVRTC names the real library; if it refuses a source, its log is the result. Without
// CARD_NVRTC, only g++ compiles. CARD_COMPILER is the command line of g++, as a shell reads it, and
// CARD_MODULE the object file of kernel_module.cpp.
#include <dlfcn.h>
#include <cuda.h>
#include <nvrtc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <vector>

#include "image.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

extern "C" void card_log_note(const char* name);
extern "C" int card_refuse(const char* name);

namespace {
constexpr int kMajor = CUDA_VERSION / 1000, kMinor = CUDA_VERSION % 1000 / 10;

struct Program {
    std::string source, name, log, image;
};

Program& program_of(nvrtcProgram handle) { return *reinterpret_cast<Program*>(handle); }

std::string setting(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

template <class F>
F* real(const char* name) {
    static void* library = dlopen(setting("CARD_NVRTC").c_str(), RTLD_NOW | RTLD_LOCAL);
    return library ? reinterpret_cast<F*>(dlsym(library, name)) : nullptr;
}
#define REAL(name) real<decltype(name)>(#name)

nvrtcResult compile_for_real(Program& program, const std::vector<const char*>& options) {
    if (setting("CARD_NVRTC").empty()) return NVRTC_SUCCESS;
    if (!REAL(nvrtcCreateProgram)) {
        program.log = "CARD_NVRTC cannot be opened: " + setting("CARD_NVRTC");
        return NVRTC_ERROR_INTERNAL_ERROR;
    }
    nvrtcProgram made;
    REAL(nvrtcCreateProgram)(&made, program.source.c_str(), program.name.c_str(), 0, nullptr, nullptr);
    const nvrtcResult result = REAL(nvrtcCompileProgram)(made, options.size(), options.data());
    std::size_t bytes = 0;
    REAL(nvrtcGetProgramLogSize)(made, &bytes);
    program.log.resize(bytes);
    REAL(nvrtcGetProgramLog)(made, program.log.data());
    REAL(nvrtcDestroyProgram)(&made);
    return result;
}

// The entry's only parameter is a struct, which the card passes as bytes.
std::string unit_of(const std::string& source, const std::string& entry) {
    const bool has_barriers = source.find("__syncthreads(") != std::string::npos;
    return "#include \"cuda_on_host.hpp\"\n#include \"kernel_module.hpp\"\n"
           "#define " + entry + " kernel_" + entry + "\n" + source + "\n#undef " + entry + "\n"
           "namespace card {\n"
           "template <class P> void call(void (*f)(P), const void* p) { f(*static_cast<const P*>(p)); }\n"
           "template <class P> constexpr unsigned long size_of(void (*)(P)) { return sizeof(P); }\n"
           "extern void (*const kernel_entry)(const void*) = [](const void* p) { call(kernel_" +
           entry + ", p); };\n"
           "extern const bool kernel_has_barriers = " + (has_barriers ? "true" : "false") + ";\n"
           "Outcome run_kernel(const Launch&);\n"
           "extern \"C\" const Kernel card_kernel = {\"" + entry + "\", size_of(kernel_" + entry +
           "), run_kernel};\n}\n";
}

// A path as one word of a shell.
std::string quoted(const std::string& path) {
    return "'" + std::regex_replace(path, std::regex("'"), R"('\'')") + "'";
}

// A temporary folder, removed by the destructor.
struct Folder {
    std::string path = (std::getenv("TMPDIR") ? setting("TMPDIR") : "/tmp") + "/card-XXXXXX";
    Folder() { if (!mkdtemp(path.data())) path.clear(); }
    ~Folder() {
        for (const char* name : {"/unit.cpp", "/module.so", "/log"}) unlink((path + name).c_str());
        rmdir(path.c_str());
    }
};

void pack(Program& program, const std::string& bytes) {
    card::ImageHeader header{{}, bytes.size()};
    std::memcpy(header.magic, card::kImageMagic, sizeof header.magic);
    program.image.assign(reinterpret_cast<const char*>(&header), sizeof header);
    program.image += bytes;
}

nvrtcResult compile_for_host(Program& program) {
    static const std::regex words(R"(__launch_bounds__\([^)]*\)\s*(\w+)\s*\()");
    std::smatch entry;
    if (!std::regex_search(program.source, entry, words)) {
        program.log = "the simulated card has no kernels of CuPy's own: only those with one struct "
                      "as their parameter, and __launch_bounds__";
        return NVRTC_ERROR_COMPILATION;
    }
    const Folder folder;
    const std::string unit = folder.path + "/unit.cpp", made = folder.path + "/module.so";
    std::ofstream(unit) << unit_of(program.source, entry[1]);
    const std::string log = folder.path + "/log";
    const std::string command = setting("CARD_COMPILER") + " " + quoted(unit) + " " +
                                quoted(setting("CARD_MODULE")) + " -o " + quoted(made) + " 2> " +
                                quoted(log);
    if (std::system(command.c_str())) {
        program.log = "g++ refuses the source:\n" + contents(log);
        return NVRTC_ERROR_COMPILATION;
    }
    pack(program, contents(made));
    return NVRTC_SUCCESS;
}

constexpr int kArchitectures[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
constexpr char kText[] = "// a program of the simulated card\n";
}  // namespace

EXPORT nvrtcResult nvrtcVersion(int* major, int* minor) {
    const std::string wanted = setting("CARD_NVRTC_VERSION");
    *major = wanted.empty() ? kMajor : std::stoi(wanted);
    *minor = kMinor;
    return NVRTC_SUCCESS;
}

EXPORT const char* nvrtcGetErrorString(nvrtcResult result) {
    return result == NVRTC_ERROR_COMPILATION ? "NVRTC_ERROR_COMPILATION" : "an error of NVRTC";
}

EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram* made, const char* source, const char* name,
                                      int headers, const char* const*, const char* const*) {
    card_log_note("nvrtcCreateProgram");
    if (headers) return NVRTC_ERROR_INVALID_INPUT;
    *made = reinterpret_cast<nvrtcProgram>(new Program{source, name ? name : "default_program"});
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram* handle) {
    delete &program_of(*handle);
    *handle = nullptr;
    return NVRTC_SUCCESS;
}

// CuPy compiles an empty program to identify the compiler; no kernel is made for it.
EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram handle, int count, const char* const* options) {
    Program& program = program_of(handle);
    if (program.source.empty()) return NVRTC_SUCCESS;
    card_log_note("nvrtcCompileProgram");
    if (const nvrtcResult result = compile_for_real(program, {options, options + count})) return result;
    return compile_for_host(program);
}

EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram handle, std::size_t* bytes) {
    *bytes = program_of(handle).log.size() + 1;
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram handle, char* log) {
    std::strcpy(log, program_of(handle).log.c_str());
    return NVRTC_SUCCESS;
}

// The PTX of a kernel is its image as well.
EXPORT nvrtcResult nvrtcGetPTXSize(nvrtcProgram handle, std::size_t* bytes) {
    const std::size_t made = program_of(handle).image.size();
    *bytes = made ? made + 1 : sizeof kText;
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetPTX(nvrtcProgram handle, char* text) {
    if (program_of(handle).image.empty()) std::strcpy(text, kText);
    else nvrtcGetCUBIN(handle, text);
    return NVRTC_SUCCESS;
}

// What NVRTC 13.2 compiles for.
EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
    *count = std::size(kArchitectures);
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetSupportedArchs(int* found) {
    std::copy(std::begin(kArchitectures), std::end(kArchitectures), found);
    return NVRTC_SUCCESS;
}

// The size includes the terminating zero, as in NVRTC.
EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram handle, std::size_t* bytes) {
    *bytes = program_of(handle).image.size() + 1;
    return NVRTC_SUCCESS;
}

EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram handle, char* image) {
    const std::string& made = program_of(handle).image;
    std::memcpy(image, made.data(), made.size());
    image[made.size()] = 0;
    return NVRTC_SUCCESS;
}

// Functions of NVRTC that CuPy looks up but the card does not model.
#define REFUSE(name, ...)                             \
    EXPORT nvrtcResult name(__VA_ARGS__) {            \
        card_refuse(#name);                           \
        return NVRTC_ERROR_INTERNAL_ERROR;            \
    }
REFUSE(nvrtcAddNameExpression, nvrtcProgram, const char*)
REFUSE(nvrtcGetLoweredName, nvrtcProgram, const char*, const char**)
REFUSE(nvrtcGetLTOIRSize, nvrtcProgram, std::size_t*)
REFUSE(nvrtcGetLTOIR, nvrtcProgram, char*)
