/* The generated header is C as well: a plain C program may include it twice, and use it. */
#include "level_zero.h"

int main(void) {
  const ze_context_desc_t desc = {ZE_STRUCTURE_TYPE_CONTEXT_DESC, NULL, 0};
  ze_graph_dditable_ext_t table = {0};
  return desc.flags == 0 && table.pfnCreate == NULL ? 0 : 1;
}
