#include "store/secret-box.h"

#include <kj/io.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

namespace capstan {

namespace {

constexpr kj::byte FORMAT = 1;
constexpr size_t MARK = 8;
constexpr size_t NONCE = 12;
constexpr size_t TAG = 16;
constexpr size_t HEADER = 1 + MARK + NONCE;
constexpr kj::StringPtr KEY_FILE = "secret.key"_kj;
constexpr kj::StringPtr NEXT_FILE = "secret.key.next"_kj;

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

Problem badKey(kj::StringPtr path, kj::String cause) {
  return Problem(ErrorCode::DENIED, kj::str("cannot use the key file ", path))
      .because(kj::mv(cause))
      .retryable(RetryHint::AFTER_USER_ACTION);
}

Problem systemFailure(kj::StringPtr path, int error) {
  if (error == ENOSPC || error == EDQUOT) {
    return Problem(ErrorCode::RESOURCE_EXHAUSTED, kj::str("no room for the key file ", path))
        .because(kj::str(strerror(error)))
        .advise(kj::str("free space on that file system, then try again"))
        .retryable(RetryHint::AFTER_USER_ACTION);
  }
  return badKey(path, kj::str(strerror(error)));
}

// Makes a folder's entries durable.
Outcome syncFolder(kj::StringPtr directory) {
  int fd = open(directory.cStr(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return systemFailure(directory, errno);
  kj::AutoCloseFd folder(fd);
  if (fsync(fd) < 0) return systemFailure(directory, errno);
  return nullptr;
}

void checkCrypto(bool ok, kj::StringPtr call) { KJ_REQUIRE(ok, "a libcrypto call failed", call); }

const unsigned char* octets(kj::StringPtr text) {
  return reinterpret_cast<const unsigned char*>(text.begin());
}

}  // namespace

SecretBox::Key SecretBox::makeKey(SecretBytes bytes) {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  // The mark is in every sealed value: it must tell nothing of the key that helps to find it.
  constexpr kj::StringPtr PURPOSE = "capstan secret key mark"_kj;
  kj::Array<kj::byte> text = kj::heapArray<kj::byte>(PURPOSE.size() + KEY_BYTES);
  memcpy(text.begin(), PURPOSE.begin(), PURPOSE.size());
  memcpy(text.begin() + PURPOSE.size(), bytes.asPtr().begin(), KEY_BYTES);
  SecretBytes input(kj::mv(text));
  checkCrypto(EVP_Digest(input.asPtr().begin(), input.asPtr().size(), hash, &size, EVP_sha256(),
                         nullptr) == 1,
              "EVP_Digest");
  Key key{kj::mv(bytes), {}};
  memcpy(key.mark, hash, MARK);
  OPENSSL_cleanse(hash, sizeof(hash));
  return key;
}

Result<kj::Maybe<SecretBox::Key>> SecretBox::readKey(kj::StringPtr path) {
  int fd = ::open(path.cStr(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    int error = errno;
    if (error == ENOENT) return kj::Maybe<Key>(nullptr);
    if (error == ELOOP) return badKey(path, kj::str("it is a symbolic link"));
    return systemFailure(path, error);
  }
  kj::AutoCloseFd file(fd);
  struct stat info;
  if (fstat(fd, &info) < 0) return systemFailure(path, errno);
  if (!S_ISREG(info.st_mode)) return badKey(path, kj::str("it is no regular file"));
  if (info.st_uid != geteuid()) {
    return badKey(path, kj::str("it belongs to user ", info.st_uid));
  }
  if ((info.st_mode & 07777) != 0600) {
    char mode[8];
    snprintf(mode, sizeof(mode), "%04o", static_cast<unsigned>(info.st_mode & 07777));
    return badKey(path, kj::str("its mode is ", mode, ", it must be 0600"))
        .advise(kj::str("if nobody else has read it: chmod 600 ", path));
  }
  if (info.st_size != KEY_BYTES) {
    return badKey(path, kj::str("it has ", info.st_size, " octets, a key has ", KEY_BYTES))
        .advise(kj::str("put back a copy of it; without it the stored secrets are lost"));
  }
  SecretBytes bytes(kj::heapArray<kj::byte>(KEY_BYTES));
  size_t done = 0;
  while (done < KEY_BYTES) {
    ssize_t n = read(fd, bytes.asPtr().begin() + done, KEY_BYTES - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return badKey(path, n < 0 ? kj::str(strerror(errno)) : kj::str("it shrank"));
    done += static_cast<size_t>(n);
  }
  return kj::Maybe<Key>(makeKey(kj::mv(bytes)));
}

Result<SecretBox::Key> SecretBox::writeKey(kj::StringPtr directory, kj::StringPtr name,
                                           Entropy& entropy) {
  auto path = kj::str(directory, "/", name);
  // Written whole under another name: a crash leaves no half of a key.
  auto draft = kj::str(path, ".new");
  SecretBytes bytes(kj::heapArray<kj::byte>(KEY_BYTES));
  entropy.fill(bytes.asPtr());
  if (unlink(draft.cStr()) < 0 && errno != ENOENT) return systemFailure(draft, errno);
  int fd = ::open(draft.cStr(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return systemFailure(draft, errno);
  kj::AutoCloseFd file(fd);
  int error = 0;
  ssize_t n = write(fd, bytes.asPtr().begin(), KEY_BYTES);
  if (n != static_cast<ssize_t>(KEY_BYTES)) {
    error = n < 0 ? errno : ENOSPC;
  } else if (fchmod(fd, 0600) < 0 || fsync(fd) < 0) {  // Whatever the umask is.
    error = errno;
  } else if (link(draft.cStr(), path.cStr()) < 0) {  // Unlike rename, replaces nothing.
    error = errno;
  }
  unlink(draft.cStr());
  if (error != 0) return systemFailure(path, error);
  KJ_IF_MAYBE (problem, syncFolder(directory)) {
    return kj::mv(*problem);
  }
  return makeKey(kj::mv(bytes));
}

Result<SecretBox> SecretBox::open(kj::StringPtr directory, Entropy& entropy,
                                  WhenAbsent whenAbsent) {
  auto path = kj::str(directory, "/", KEY_FILE);
  auto read = readKey(path);
  if (read.is<Problem>()) return kj::mv(read.get<Problem>());
  auto readNext = readKey(kj::str(directory, "/", NEXT_FILE));
  if (readNext.is<Problem>()) return kj::mv(readNext.get<Problem>());
  auto& next = readNext.get<kj::Maybe<Key>>();
  KJ_IF_MAYBE (key, read.get<kj::Maybe<Key>>()) {
    return SecretBox(kj::str(directory), kj::mv(*key), kj::mv(next));
  }
  if (whenAbsent == WhenAbsent::REFUSE || next != nullptr) {
    return badKey(path, kj::str("it is gone, and secrets are sealed with it"))
        .advise(kj::str("put back a copy of it; without it the stored secrets are lost"));
  }
  auto made = writeKey(directory, KEY_FILE, entropy);
  if (made.is<Problem>()) return kj::mv(made.get<Problem>());
  return SecretBox(kj::str(directory), kj::mv(made.get<Key>()), nullptr);
}

const SecretBox::Key& SecretBox::sealing() const {
  KJ_IF_MAYBE (key, next) {
    return *key;
  }
  return current;
}

Result<kj::Array<kj::byte>> SecretBox::seal(kj::StringPtr rowId, kj::ArrayPtr<const kj::byte> value,
                                            Entropy& entropy) const {
  if (value.size() > MOST_BYTES) {
    return Problem(ErrorCode::INVALID_ARGUMENT, kj::str("the secret is too large"))
        .because(kj::str("it has ", value.size(), " octets, at most ", MOST_BYTES, " can be kept"));
  }
  auto& key = sealing();
  auto sealed = kj::heapArray<kj::byte>(HEADER + value.size() + TAG);
  sealed[0] = FORMAT;
  memcpy(sealed.begin() + 1, key.mark, MARK);
  auto nonce = sealed.slice(1 + MARK, HEADER);
  entropy.fill(nonce);
  Context context(EVP_CIPHER_CTX_new());
  checkCrypto(context != nullptr, "EVP_CIPHER_CTX_new");
  int size = 0;
  checkCrypto(EVP_EncryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr,
                                 key.bytes.asPtr().begin(), nonce.begin()) == 1,
              "EVP_EncryptInit_ex");
  // The header is authenticated too.
  checkCrypto(EVP_EncryptUpdate(context.get(), nullptr, &size, sealed.begin(), 1 + MARK) == 1 &&
                  EVP_EncryptUpdate(context.get(), nullptr, &size, octets(rowId),
                                    static_cast<int>(rowId.size())) == 1,
              "EVP_EncryptUpdate");
  auto out = sealed.begin() + HEADER;
  if (value.size() > 0) {
    checkCrypto(EVP_EncryptUpdate(context.get(), out, &size, value.begin(),
                                  static_cast<int>(value.size())) == 1,
                "EVP_EncryptUpdate");
  }
  checkCrypto(EVP_EncryptFinal_ex(context.get(), out + value.size(), &size) == 1,
              "EVP_EncryptFinal_ex");
  checkCrypto(
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, TAG, out + value.size()) == 1,
      "EVP_CTRL_GCM_GET_TAG");
  return kj::mv(sealed);
}

Result<SecretBytes> SecretBox::open(kj::StringPtr rowId,
                                    kj::ArrayPtr<const kj::byte> sealed) const {
  auto refused = [&](kj::StringPtr cause) {
    return Problem(ErrorCode::STORE_CORRUPT,
                   kj::str("the stored secret '", rowId, "' cannot be opened"))
        .because(kj::str(cause))
        .retryable(RetryHint::AFTER_USER_ACTION);
  };
  if (sealed.size() < OVERHEAD || sealed[0] != FORMAT) {
    return refused("it is not in a form this program knows"_kj);
  }
  const Key* key = nullptr;
  if (memcmp(sealed.begin() + 1, current.mark, MARK) == 0) key = &current;
  KJ_IF_MAYBE (n, next) {
    if (memcmp(sealed.begin() + 1, n->mark, MARK) == 0) key = n;
  }
  if (key == nullptr) {
    return refused("it was sealed with another key"_kj)
        .advise(kj::str("put back the key file that belongs to this store: ", directory, "/",
                        KEY_FILE));
  }
  size_t length = sealed.size() - OVERHEAD;
  SecretBytes value(kj::heapArray<kj::byte>(length));
  Context context(EVP_CIPHER_CTX_new());
  checkCrypto(context != nullptr, "EVP_CIPHER_CTX_new");
  int size = 0;
  checkCrypto(EVP_DecryptInit_ex(context.get(), EVP_aes_256_gcm(), nullptr,
                                 key->bytes.asPtr().begin(), sealed.begin() + 1 + MARK) == 1,
              "EVP_DecryptInit_ex");
  checkCrypto(EVP_DecryptUpdate(context.get(), nullptr, &size, sealed.begin(), 1 + MARK) == 1 &&
                  EVP_DecryptUpdate(context.get(), nullptr, &size, octets(rowId),
                                    static_cast<int>(rowId.size())) == 1,
              "EVP_DecryptUpdate");
  auto in = sealed.begin() + HEADER;
  if (length > 0) {
    checkCrypto(EVP_DecryptUpdate(context.get(), value.asPtr().begin(), &size, in,
                                  static_cast<int>(length)) == 1,
                "EVP_DecryptUpdate");
  }
  kj::byte tag[TAG];
  memcpy(tag, in + length, TAG);
  checkCrypto(EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, TAG, tag) == 1,
              "EVP_CTRL_GCM_SET_TAG");
  kj::byte none[1];
  if (EVP_DecryptFinal_ex(context.get(), none, &size) != 1) {
    return refused("it was changed, or belongs to another row"_kj);
  }
  return kj::mv(value);
}

Outcome SecretBox::beginRotation(Entropy& entropy) {
  if (next != nullptr) return nullptr;  // Begun before a crash.
  auto made = writeKey(directory, NEXT_FILE, entropy);
  if (made.is<Problem>()) return kj::mv(made.get<Problem>());
  next = kj::mv(made.get<Key>());
  return nullptr;
}

bool SecretBox::isCurrent(kj::ArrayPtr<const kj::byte> sealed) const {
  return sealed.size() >= OVERHEAD && memcmp(sealed.begin() + 1, sealing().mark, MARK) == 0;
}

Outcome SecretBox::finishRotation() {
  KJ_IF_MAYBE (key, next) {
    auto from = kj::str(directory, "/", NEXT_FILE), to = kj::str(directory, "/", KEY_FILE);
    if (rename(from.cStr(), to.cStr()) < 0) return systemFailure(to, errno);
    current = kj::mv(*key);
    next = nullptr;
    return syncFolder(directory);
  }
  return nullptr;
}

}  // namespace capstan
