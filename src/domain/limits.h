#pragma once
// Every default deadline and bound, with its reason. All can be configured.

#include <kj/time.h>

#include <cstddef>
#include <cstdint>

namespace capstan {

struct Deadlines {
  kj::Duration connect = 30 * kj::SECONDS;
  kj::Duration handshake = 10 * kj::SECONDS;
  kj::Duration helperStart = 30 * kj::SECONDS;
  kj::Duration prepare = 10 * kj::MINUTES;
  kj::Duration launch = 20 * kj::MINUTES;     // Bring-up included.
  kj::Duration stopGrace = 10 * kj::SECONDS;  // TERM to KILL.
  kj::Duration cleanup = 2 * kj::MINUTES;     // One resource.
  kj::Duration control = 30 * kj::SECONDS;    // One answer of the helper to a control call.
  kj::Duration outputKept = 7 * kj::DAYS;     // From a run's end until its output goes.
  kj::Duration health = 15 * kj::SECONDS;     // One check, should the runtime have no bound itself.
  kj::Duration lossGrace = 15 * kj::SECONDS;  // Out of reach for less is no episode.
  kj::Duration inspection = 5 * kj::SECONDS;  // One look at an environment that only reads.
};

struct Limits {
  Deadlines deadlines;
  size_t outputSpoolBytes = 64u << 20;   // Per run; then the oldest output goes.
  size_t commandWords = 4096;            // Far above any real command, far below ARG_MAX's pages.
  size_t commandBytes = 1u << 20;        // Half of Linux's usual 2 MiB for argv and variables.
  size_t variables = 1024;               // Definitions in one launch.
  size_t environments = 10000;           // Per daemon: memory stays below 1 GiB (64 KiB each).
  size_t sessionsPerEnvironment = 1000;  // Ended ones included; listed in one answer.
  size_t execsPerEnvironment = 256;      // At once; each costs a process and its descriptors.
  size_t watchers = 256;                 // Of one connection; each holds what it is behind by.
  size_t labels = 64;
  size_t repositories = 32;  // Of one workspace; its source roots too.
  size_t textBytes = 4096;   // Titles, labels, reasons, paths.
  size_t listPage = 500;     // Rows in one answer, so that a turn stays short.
  size_t executors = 500;
  size_t profiles = 2000;
  size_t tenantDefaults = 1000;         // Default executors.
  size_t configBytes = 320u << 10;      // Of one row: a pod template alone may have 256 KiB.
  size_t scriptBytes = 256u << 10;      // One script; two and a config fit one message.
  size_t catalogBytes = 64u << 20;      // Of all rows: they are held in memory.
  size_t secrets = 10000;               // Of users.
  size_t launchSecretBytes = 4u << 20;  // Opened for one launch; argv and variables hold less.
};

}  // namespace capstan
