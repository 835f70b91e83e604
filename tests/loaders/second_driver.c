/* A second Level Zero driver: one GPU, no memory, no queues. It stands beside the software driver behind real loaders,
 * and behind the embedded one, where these macros make it a driver of another kind:
 *
 *   TYPES             what zeInit and zeInitDrivers accept: 1 GPU, 2 NPU, 3 both
 *   INIT_RESULT       what they answer when they are asked for such a type
 *   INIT_SECONDS      how long each of them takes
 *   NO_INIT_DRIVERS   a driver from before 1.10
 *   MEM_TABLE_RESULT  what the getter of a required table answers
 *   EXP_TABLE_RESULT  what the getter of an experimental table answers
 *   OVERFLOW_SLOTS    slots that it writes behind the end of its global table
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "level_zero.h"

#ifndef TYPES
#define TYPES ZE_INIT_DRIVER_TYPE_FLAG_GPU
#endif
#ifndef INIT_RESULT
#define INIT_RESULT ZE_RESULT_SUCCESS
#endif
#ifndef INIT_SECONDS
#define INIT_SECONDS 0
#endif
#ifndef MEM_TABLE_RESULT
#define MEM_TABLE_RESULT ZE_RESULT_SUCCESS
#endif
#ifndef EXP_TABLE_RESULT
#define EXP_TABLE_RESULT ZE_RESULT_SUCCESS
#endif
#ifndef OVERFLOW_SLOTS
#define OVERFLOW_SLOTS 0
#endif

/* Objects know their driver. Like most drivers this one takes handles for addresses of its own, and looks. */
struct object {
  const void* driver;
};
static struct object the_driver = {&the_driver}, the_device = {&the_driver};
static int inits = 0;

static int is_mine(const void* handle) { return ((const struct object*)handle)->driver == &the_driver; }

/* For tests: how often the driver was asked to initialize. */
ZE_APIEXPORT int second_driver_inits(void) { return inits; }

static ze_result_t init_types(uint32_t types) {
  ++inits;
  sleep(INIT_SECONDS);
  return (types & TYPES) != 0 ? INIT_RESULT : ZE_RESULT_ERROR_UNINITIALIZED;
}

static ze_result_t give(uint32_t* count, void** handles, void* only) {
  if (count == NULL) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  if (handles != NULL && *count > 0) handles[0] = only;
  if (handles == NULL || *count == 0 || *count > 1) *count = 1;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL init(ze_init_flags_t flags) { return init_types(flags == 0 ? 3 : flags); }

static ze_result_t ZE_APICALL driver_get(uint32_t* count, ze_driver_handle_t* handles) {
  return give(count, (void**)handles, &the_driver);
}

#ifndef NO_INIT_DRIVERS
static ze_result_t ZE_APICALL init_drivers(uint32_t* count, ze_driver_handle_t* handles,
                                           ze_init_driver_type_desc_t* desc) {
  const ze_result_t result = init_types(desc->flags);
  return result == ZE_RESULT_SUCCESS ? driver_get(count, handles) : result;
}
#endif

static ze_result_t ZE_APICALL driver_get_api_version(ze_driver_handle_t driver, ze_api_version_t* version) {
  if (driver == NULL) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
  *version = (ze_api_version_t)ZE_MAKE_VERSION(1, 3);
  return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL driver_get_properties(ze_driver_handle_t driver, ze_driver_properties_t* properties) {
  if (driver == NULL) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
  memset(&properties->uuid, 0x2d, sizeof properties->uuid);
  properties->driverVersion = 1;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL driver_get_extension_properties(ze_driver_handle_t driver, uint32_t* count,
                                                              ze_driver_extension_properties_t* properties) {
  (void)properties;
  if (driver == NULL) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
  *count = 0;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL device_get(ze_driver_handle_t driver, uint32_t* count, ze_device_handle_t* handles) {
  if (driver == NULL) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
  return give(count, (void**)handles, &the_device);
}

static ze_result_t ZE_APICALL device_get_properties(ze_device_handle_t device, ze_device_properties_t* properties) {
  if (device == NULL) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
  properties->type = ZE_DEVICE_TYPE_GPU;
  properties->vendorId = 0x1d1d;
  properties->deviceId = 2;
  memset(&properties->uuid, 0x2d, sizeof properties->uuid);
  strcpy(properties->name, "second driver's GPU");
  return ZE_RESULT_SUCCESS;
}

static ze_result_t make_object(void** handle) {
  struct object* made = malloc(sizeof *made);
  if (made == NULL) return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
  made->driver = &the_driver;
  *handle = made;
  return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL context_create(ze_driver_handle_t driver, const ze_context_desc_t* desc,
                                             ze_context_handle_t* context) {
  if (driver == NULL) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
  if (desc == NULL || context == NULL) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;
  return make_object((void**)context);
}

static ze_result_t ZE_APICALL context_create_ex(ze_driver_handle_t driver, const ze_context_desc_t* desc,
                                                uint32_t count, ze_device_handle_t* devices,
                                                ze_context_handle_t* context) {
  for (uint32_t i = 0; i < count; ++i) {
    if (!is_mine(devices[i])) abort();
  }
  return context_create(driver, desc, context);
}

static ze_result_t ZE_APICALL context_destroy(ze_context_handle_t context) {
  if (context == NULL) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
  if (!is_mine(context)) abort();
  free(context);
  return ZE_RESULT_SUCCESS;
}

/* The device is lost to contexts of other drivers. */
static ze_result_t ZE_APICALL context_get_status(ze_context_handle_t context) {
  if (context == NULL) return ZE_RESULT_ERROR_INVALID_NULL_HANDLE;
  return is_mine(context) ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_DEVICE_LOST;
}

static ze_result_t ZE_APICALL context_system_barrier(ze_context_handle_t context, ze_device_handle_t device) {
  if (!is_mine(context) || !is_mine(device)) abort();
  return ZE_RESULT_SUCCESS;
}

static ze_result_t ZE_APICALL physical_mem_create(ze_context_handle_t context, ze_device_handle_t device,
                                                  ze_physical_mem_desc_t* desc, ze_physical_mem_handle_t* memory) {
  (void)desc;
  if (!is_mine(context) || !is_mine(device)) abort();
  return make_object((void**)memory);
}

static ze_result_t ZE_APICALL physical_mem_destroy(ze_context_handle_t context, ze_physical_mem_handle_t memory) {
  if (!is_mine(context)) abort();
  return context_destroy((ze_context_handle_t)memory);
}

#define GETTER(name, table_type, ...)                                                     \
  ZE_APIEXPORT ze_result_t ZE_APICALL name(ze_api_version_t version, table_type* table) { \
    if (table == NULL) return ZE_RESULT_ERROR_INVALID_NULL_POINTER;                       \
    if (ZE_MAJOR_VERSION(version) != 1) return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;       \
    __VA_ARGS__                                                                           \
    return ZE_RESULT_SUCCESS;                                                             \
  }

GETTER(zeGetGlobalProcAddrTable, ze_global_dditable_t, {
  table->pfnInit = init;
#ifndef NO_INIT_DRIVERS
  if (version >= ZE_MAKE_VERSION(1, 10)) table->pfnInitDrivers = init_drivers;
#endif
  for (int i = 0; i < OVERFLOW_SLOTS; ++i) ((void**)(table + 1))[i] = (void*)abort;
})
GETTER(zeGetDriverProcAddrTable, ze_driver_dditable_t, {
  table->pfnGet = driver_get;
  table->pfnGetApiVersion = driver_get_api_version;
  table->pfnGetProperties = driver_get_properties;
  table->pfnGetExtensionProperties = driver_get_extension_properties;
})
GETTER(zeGetDeviceProcAddrTable, ze_device_dditable_t, {
  table->pfnGet = device_get;
  table->pfnGetProperties = device_get_properties;
})
GETTER(zeGetContextProcAddrTable, ze_context_dditable_t, {
  table->pfnCreate = context_create;
  table->pfnDestroy = context_destroy;
  table->pfnGetStatus = context_get_status;
  table->pfnSystemBarrier = context_system_barrier;
  if (version >= ZE_MAKE_VERSION(1, 1)) table->pfnCreateEx = context_create_ex;
})
GETTER(zeGetMemProcAddrTable, ze_mem_dditable_t, {
  if (MEM_TABLE_RESULT != ZE_RESULT_SUCCESS) return MEM_TABLE_RESULT;
})
GETTER(zeGetMemExpProcAddrTable, ze_mem_exp_dditable_t, {
  if (EXP_TABLE_RESULT != ZE_RESULT_SUCCESS) return EXP_TABLE_RESULT;
})

/* Loaders up to 1.25 refuse a driver that lacks any of these. */
GETTER(zeGetCommandQueueProcAddrTable, ze_command_queue_dditable_t, )
GETTER(zeGetCommandListProcAddrTable, ze_command_list_dditable_t, )
GETTER(zeGetEventProcAddrTable, ze_event_dditable_t, )
GETTER(zeGetEventPoolProcAddrTable, ze_event_pool_dditable_t, )
GETTER(zeGetFenceProcAddrTable, ze_fence_dditable_t, )
GETTER(zeGetImageProcAddrTable, ze_image_dditable_t, )
GETTER(zeGetKernelProcAddrTable, ze_kernel_dditable_t, )
GETTER(zeGetModuleProcAddrTable, ze_module_dditable_t, )
GETTER(zeGetModuleBuildLogProcAddrTable, ze_module_build_log_dditable_t, )
GETTER(zeGetPhysicalMemProcAddrTable, ze_physical_mem_dditable_t, {
  table->pfnCreate = physical_mem_create;
  table->pfnDestroy = physical_mem_destroy;
})
GETTER(zeGetSamplerProcAddrTable, ze_sampler_dditable_t, )
GETTER(zeGetVirtualMemProcAddrTable, ze_virtual_mem_dditable_t, )
GETTER(zetGetDeviceProcAddrTable, zet_device_dditable_t, )
GETTER(zetGetContextProcAddrTable, zet_context_dditable_t, )
GETTER(zetGetCommandListProcAddrTable, zet_command_list_dditable_t, )
GETTER(zetGetKernelProcAddrTable, zet_kernel_dditable_t, )
GETTER(zetGetModuleProcAddrTable, zet_module_dditable_t, )
GETTER(zetGetDebugProcAddrTable, zet_debug_dditable_t, )
GETTER(zetGetMetricProcAddrTable, zet_metric_dditable_t, )
GETTER(zetGetMetricGroupProcAddrTable, zet_metric_group_dditable_t, )
GETTER(zetGetMetricQueryProcAddrTable, zet_metric_query_dditable_t, )
GETTER(zetGetMetricQueryPoolProcAddrTable, zet_metric_query_pool_dditable_t, )
GETTER(zetGetMetricStreamerProcAddrTable, zet_metric_streamer_dditable_t, )
GETTER(zetGetTracerExpProcAddrTable, zet_tracer_exp_dditable_t, )
GETTER(zesGetDeviceProcAddrTable, zes_device_dditable_t, )
GETTER(zesGetDriverProcAddrTable, zes_driver_dditable_t, )
GETTER(zesGetDiagnosticsProcAddrTable, zes_diagnostics_dditable_t, )
GETTER(zesGetEngineProcAddrTable, zes_engine_dditable_t, )
GETTER(zesGetFabricPortProcAddrTable, zes_fabric_port_dditable_t, )
GETTER(zesGetFanProcAddrTable, zes_fan_dditable_t, )
GETTER(zesGetFirmwareProcAddrTable, zes_firmware_dditable_t, )
GETTER(zesGetFrequencyProcAddrTable, zes_frequency_dditable_t, )
GETTER(zesGetLedProcAddrTable, zes_led_dditable_t, )
GETTER(zesGetMemoryProcAddrTable, zes_memory_dditable_t, )
GETTER(zesGetPerformanceFactorProcAddrTable, zes_performance_factor_dditable_t, )
GETTER(zesGetPowerProcAddrTable, zes_power_dditable_t, )
GETTER(zesGetPsuProcAddrTable, zes_psu_dditable_t, )
GETTER(zesGetRasProcAddrTable, zes_ras_dditable_t, )
GETTER(zesGetSchedulerProcAddrTable, zes_scheduler_dditable_t, )
GETTER(zesGetStandbyProcAddrTable, zes_standby_dditable_t, )
GETTER(zesGetTemperatureProcAddrTable, zes_temperature_dditable_t, )
