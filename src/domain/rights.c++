#include "domain/rights.h"

namespace capstan {

std::string_view rightName(Right right) {
  switch (right) {
    case Right::NONE:
      return "none";
    case Right::OBSERVE:
      return "observe";
    case Right::ATTACH:
      return "attach";
    case Right::LAUNCH:
      return "launch";
    case Right::EXEC:
      return "exec";
    case Right::FORWARD:
      return "forward";
    case Right::STOP:
      return "stop";
    case Right::CLEANUP:
      return "cleanup";
    case Right::DELEGATE:
      return "delegate";
  }
  return "unknown";
}

}  // namespace capstan
