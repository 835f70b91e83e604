#include "profiling.hpp"

#include <cstring>

#include "device.hpp"
#include "graph.hpp"
#include "softdriver_functions.hpp"
#include "text.hpp"

namespace softdriver {
namespace {

ze_layer_status_t status_of(openvino::LayerTime::Status status) noexcept {
  switch (status) {
    case openvino::LayerTime::Status::not_run: return ZE_LAYER_STATUS_NOT_RUN;
    case openvino::LayerTime::Status::optimized_out: return ZE_LAYER_STATUS_OPTIMIZED_OUT;
    case openvino::LayerTime::Status::executed: break;
  }
  return ZE_LAYER_STATUS_EXECUTED;
}

template <class Record>
void hand_out_records(const std::vector<Record>& records, uint32_t* size, uint8_t* data) {
  hand_out(records.data(), records.size() * sizeof(Record), size, data, "pSize");
}

}  // namespace

ProfilingQuery::ProfilingQuery(std::shared_ptr<ProfilingPool> pool, uint32_t index)
    : Object(kind_of), pool(std::move(pool)), index(index) {}

void ProfilingQuery::start() {
  const auto lock = home.lock(mutex_);
  begin_ = device_ticks();
  times_.clear();
}

void ProfilingQuery::finish(std::vector<openvino::LayerTime> times) {
  const auto lock = home.lock(mutex_);
  times_ = std::move(times);
}

// The layers ran one after the other; when each began follows from how long those before it took.
std::vector<ze_profiling_layer_info> ProfilingQuery::layers() const {
  const auto lock = home.lock(mutex_);
  std::vector<ze_profiling_layer_info> records(times_.size());
  uint64_t begin = begin_;
  for (size_t i = 0; i < records.size(); ++i) {
    const openvino::LayerTime& time = times_[i];
    ze_profiling_layer_info& record = records[i];
    copy_text(record.name, time.name);
    copy_text(record.layer_type, time.type);
    record.status = status_of(time.status);
    record.start_time_ns = begin;
    record.duration_ns = record.sw_ns = time.wall_us * 1000;
    record.layer_id = static_cast<uint32_t>(i);
    begin += record.duration_ns;
  }
  return records;
}

// Each layer is one task, done in software.
std::vector<ze_profiling_task_info> ProfilingQuery::tasks() const {
  std::vector<ze_profiling_task_info> records;
  for (const ze_profiling_layer_info& layer : layers()) {
    ze_profiling_task_info record{};
    std::memcpy(record.name, layer.name, sizeof record.name);
    std::memcpy(record.layer_type, layer.layer_type, sizeof record.layer_type);
    record.exec_type = ZE_TASK_EXECUTE_SW;
    record.start_time_ns = layer.start_time_ns;
    record.duration_ns = layer.duration_ns;
    record.task_id = record.parent_layer_id = layer.layer_id;
    records.push_back(record);
  }
  return records;
}

ze_result_t api::profiling_pfnProfilingPoolCreate(ze_graph_handle_t hGraph, uint32_t count,
                                                  ze_graph_profiling_pool_handle_t* phProfilingPool) {
  const auto graph = find<Graph>(hGraph);
  if (!graph->model->profiling()) {
    throw Failure(ZE_RESULT_ERROR_NOT_AVAILABLE, "the graph was not compiled with profiling");
  }
  if (count == 0) {
    throw Failure(ZE_RESULT_ERROR_INVALID_SIZE, "count is 0");
  }
  require(phProfilingPool, "phProfilingPool");
  *phProfilingPool = publish(std::make_shared<ProfilingPool>(count));
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::profiling_pfnProfilingPoolDestroy(ze_graph_profiling_pool_handle_t hProfilingPool) {
  find<ProfilingPool>(hProfilingPool)->places.close();
  retire<ProfilingPool>(hProfilingPool);
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::profiling_pfnProfilingQueryCreate(ze_graph_profiling_pool_handle_t hProfilingPool, uint32_t index,
                                                   ze_graph_profiling_query_handle_t* phProfilingQuery) {
  auto pool = find<ProfilingPool>(hProfilingPool);
  require(phProfilingQuery, "phProfilingQuery");
  *phProfilingQuery = publish_at(pool->places, index, std::make_shared<ProfilingQuery>(pool, index));
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::profiling_pfnProfilingQueryDestroy(ze_graph_profiling_query_handle_t hProfilingQuery) {
  const auto query = retire<ProfilingQuery>(hProfilingQuery);
  query->pool->places.give_back(query->index);
  return ZE_RESULT_SUCCESS;
}

// Raw data are in a form of the driver's own: here the layers' records.
ze_result_t api::profiling_pfnProfilingQueryGetData(ze_graph_profiling_query_handle_t hProfilingQuery,
                                                    ze_graph_profiling_type_t profilingType, uint32_t* pSize,
                                                    uint8_t* pData) {
  const auto query = find<ProfilingQuery>(hProfilingQuery);
  switch (static_cast<uint32_t>(profilingType)) {
    case ZE_GRAPH_PROFILING_LAYER_LEVEL:
    case ZE_GRAPH_PROFILING_RAW: hand_out_records(query->layers(), pSize, pData); break;
    case ZE_GRAPH_PROFILING_TASK_LEVEL: hand_out_records(query->tasks(), pSize, pData); break;
    default: throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "no such kind of profiling data");
  }
  return ZE_RESULT_SUCCESS;
}

ze_result_t api::profiling_pfnDeviceGetProfilingDataProperties(
    ze_device_handle_t hDevice, ze_device_profiling_data_properties_t* pDeviceProfilingDataProperties) {
  find<Device>(hDevice);
  require(pDeviceProfilingDataProperties, "pDeviceProfilingDataProperties").extensionVersion =
      ZE_PROFILING_DATA_EXT_VERSION_CURRENT;
  return ZE_RESULT_SUCCESS;
}

// Nothing needs decoding, so there is never anything to say about it.
ze_result_t api::profiling_pfnProfilingLogGetString(ze_graph_profiling_query_handle_t phProfilingQuery, uint32_t* pSize,
                                                    char* pProfilingLog) {
  find<ProfilingQuery>(phProfilingQuery);
  hand_out("", 1, pSize, pProfilingLog, "pSize");
  return ZE_RESULT_SUCCESS;
}

}  // namespace softdriver
