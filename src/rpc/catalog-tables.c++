#include "rpc/catalog-tables.h"

#include "rpc/convert-catalog.h"

#include <kj/debug.h>

namespace capstan {

namespace {

// What tells the two tables apart.
struct Executors {
  using Wire = rpc::Executor;
  using Record = ExecutorRecord;
  using Change = ExecutorChange;
  static constexpr CatalogRow ROW = CatalogRow::EXECUTOR;

  static kj::Vector<const Record*> all(const CatalogRows& rows) { return rows.executors(); }
  static kj::Maybe<const Record&> exact(const CatalogRows& rows, kj::StringPtr id) {
    return rows.executor(id);
  }
  static Result<const Record*> find(const CatalogRows& rows, kj::StringPtr name) {
    return rows.findExecutor(name);
  }
  static Result<ExecutorChange> read(Wire::Reader row) { return readExecutorChange(row); }
  static kj::Promise<Outcome> remove(Catalog& catalog, kj::String id, uint64_t ifVersion) {
    return catalog.removeExecutor(kj::mv(id), ifVersion);
  }
};

struct Profiles {
  using Wire = rpc::Profile;
  using Record = ProfileRecord;
  using Change = ProfileChange;
  static constexpr CatalogRow ROW = CatalogRow::PROFILE;

  static kj::Vector<const Record*> all(const CatalogRows& rows) { return rows.profiles(); }
  static kj::Maybe<const Record&> exact(const CatalogRows& rows, kj::StringPtr id) {
    return rows.profile(id);
  }
  static Result<const Record*> find(const CatalogRows& rows, kj::StringPtr name) {
    return rows.findProfile(name);
  }
  static Result<ProfileChange> read(Wire::Reader row) { return readProfileChange(row); }
  static kj::Promise<Outcome> remove(Catalog& catalog, kj::String id, uint64_t ifVersion) {
    return catalog.removeProfile(kj::mv(id), ifVersion);
  }
};

static_assert(NEW_ROW == rpc::NEW_ROW && ANY_VERSION == rpc::ANY_VERSION);

// A page with more octets than this ends: the rest is one more call away.
constexpr size_t PAGE_BYTES = 4u << 20;

// Rows that may wait for a watcher. Above that it gets all rows anew, which takes less.
constexpr size_t MOST_WAITING = 1000;

// Tells one watcher of every change: all rows at first, then those that changed, each as it is by
// the time the watcher takes it. It is never waited for by anybody else.
template <typename Kind>
class TableWatch final: public rpc::Subscription::Server, private CatalogListener {
public:
  using Watcher = rpc::Watcher<typename Kind::Wire>;

  TableWatch(Catalog& catalog, typename Watcher::Client watcher, Guard guard)
      : catalog(catalog), watcher(kj::mv(watcher)), guard(kj::mv(guard)) {
    catalog.add(*this);
    sending = send().eagerlyEvaluate([](kj::Exception&& exception) {
      // Gone, as a rule. It took what it got, and gets nothing more.
      KJ_LOG(INFO, "a watcher takes no more events", exception.getDescription());
    });
  }
  ~TableWatch() noexcept(false) { catalog.remove(*this); }

protected:
  kj::Promise<void> stats(StatsContext context) override {
    if (guard.refuses(ruleOf("Subscription.stats"), context)) co_return;
    context.getResults().setDelivered(delivered);
    context.getResults().setCoalesced(coalesced);
  }

private:
  Catalog& catalog;
  typename Watcher::Client watcher;
  Guard guard;
  uint64_t delivered = 0;
  uint64_t coalesced = 0;
  bool anew = true;
  kj::TreeSet<kj::String> waiting;
  kj::Maybe<kj::Own<kj::PromiseFulfiller<void>>> wake;
  kj::Promise<void> sending = nullptr;  // Last: it uses the rest.

  void changed(CatalogRow row, kj::StringPtr id) override {
    if (row != Kind::ROW) return;
    if (waiting.find(id) != nullptr) {
      ++coalesced;
      return;
    }
    if (waiting.size() == MOST_WAITING) {
      coalesced += waiting.size();
      waiting.clear();
      anew = true;
    }
    waiting.insert(kj::str(id));
    KJ_IF_MAYBE (fulfiller, wake) {
      (*fulfiller)->fulfill();
      wake = nullptr;
    }
  }

  kj::Promise<void> send() {
    for (;;) {
      if (anew) co_await sendAll();
      while (!anew && waiting.size() > 0) {
        auto id = kj::str(*waiting.begin());
        waiting.eraseMatch(id);
        co_await sendRow(kj::mv(id));
      }
      if (anew) continue;
      auto pair = kj::newPromiseAndFulfiller<void>();
      wake = kj::mv(pair.fulfiller);
      co_await pair.promise;
    }
  }

  kj::Promise<void> sendAll() {
    anew = false;
    waiting.clear();
    auto ids = KJ_MAP(row, Kind::all(catalog.rows())) { return kj::str(row->id); };
    auto first = request();
    first.getChange().setReset();
    co_await deliver(kj::mv(first));
    for (auto& id: ids) {
      if (anew) co_return;
      // Whatever befell the row meanwhile stands among those that wait, unless it is told now.
      waiting.eraseMatch(id);
      if (Kind::exact(catalog.rows(), id) != nullptr) co_await sendRow(kj::str(id));
    }
    auto last = request();
    last.getChange().setSynced();
    co_await deliver(kj::mv(last));
  }

  kj::Promise<void> sendRow(kj::String id) {
    auto event = request();
    KJ_IF_MAYBE (row, Kind::exact(catalog.rows(), id)) {
      write(event.getChange().initUpsert(), *row);
    } else {
      event.getChange().setRemove(id);
    }
    return deliver(kj::mv(event));
  }

  auto request() {
    auto event = watcher.eventRequest();
    event.setSeq(catalog.seq());
    event.initChange();
    return event;
  }
  template <typename Request>
  kj::Promise<void> deliver(Request event) {
    ++delivered;
    return event.send();
  }
};

template <typename Kind>
class TableCap final: public rpc::Table<typename Kind::Wire>::Server {
  using Interface = rpc::Table<typename Kind::Wire>;

public:
  TableCap(Catalog& catalog, Guard guard): catalog(catalog), guard(kj::mv(guard)) {}

protected:
  kj::Promise<void> list(typename Interface::Server::ListContext context) override {
    if (guard.refuses(ruleOf("Table.list"), context)) co_return;
    auto params = context.getParams();
    auto after = copy(params.getAfter());
    auto limit = pageLimit(params.getLimit());
    kj::Vector<const typename Kind::Record*> page;
    size_t bytes = 0;
    bool more = false;
    for (auto* row: Kind::all(catalog.rows())) {
      if (row->id <= after) continue;
      more = page.size() == limit || (page.size() > 0 && bytes + bytesOf(*row) > PAGE_BYTES);
      if (more) break;
      bytes += bytesOf(*row);
      page.add(row);
    }
    auto results = context.getResults();
    auto out = results.initRows(page.size());
    for (auto i: kj::indices(page)) {
      write(out[i].initValue(), *page[i]);
      out[i].setVersion(page[i]->version);
    }
    if (more) results.setNext(page.back()->id);
  }

  kj::Promise<void> get(typename Interface::Server::GetContext context) override {
    if (guard.refuses(ruleOf("Table.get"), context)) co_return;
    auto found = Kind::find(catalog.rows(), context.getParams().getId());
    if (found.template is<Problem>()) {
      fail(context.getResults(), found.template get<Problem>());
      co_return;
    }
    auto* row = found.template get<const typename Kind::Record*>();
    write(context.getResults().initRow(), *row);
    context.getResults().setVersion(row->version);
  }

  kj::Promise<void> put(typename Interface::Server::PutContext context) override {
    if (guard.refuses(ruleOf("Table.put"), context)) co_return;
    auto params = context.getParams();
    auto change = Kind::read(params.getRow());
    if (change.template is<Problem>()) {
      fail(context.getResults(), change.template get<Problem>());
      co_return;
    }
    auto& asked = change.template get<typename Kind::Change>();
    asked.id = copy(params.getId());
    asked.ifVersion = params.getIfVersion();
    auto saved = co_await catalog.save(kj::mv(asked));
    if (saved.template is<Problem>()) {
      fail(context.getResults(), saved.template get<Problem>());
      co_return;
    }
    auto& row = saved.template get<typename Kind::Record>();
    write(context.getResults().initRow(), row);
    context.getResults().setVersion(row.version);
  }

  kj::Promise<void> remove(typename Interface::Server::RemoveContext context) override {
    if (guard.refuses(ruleOf("Table.remove"), context)) co_return;
    auto params = context.getParams();
    KJ_IF_MAYBE (problem,
                 co_await Kind::remove(catalog, copy(params.getId()), params.getIfVersion())) {
      fail(context.getResults(), *problem);
    }
  }

  kj::Promise<void> watch(typename Interface::Server::WatchContext context) override {
    if (guard.refuses(ruleOf("Table.watch"), context)) co_return;
    context.getResults().setSubscription(
        kj::heap<TableWatch<Kind>>(catalog, context.getParams().getWatcher(), guard.clone()));
  }

private:
  Catalog& catalog;
  Guard guard;
};

}  // namespace

rpc::Table<rpc::Executor>::Client newExecutorTable(Catalog& catalog, Guard guard) {
  return kj::heap<TableCap<Executors>>(catalog, kj::mv(guard));
}

rpc::Table<rpc::Profile>::Client newProfileTable(Catalog& catalog, Guard guard) {
  return kj::heap<TableCap<Profiles>>(catalog, kj::mv(guard));
}

}  // namespace capstan
