#include "cluster/tls_identity.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "base/error.h"
#include "cluster/network.h"
#include "base/fd.h"

namespace tutti {
namespace {

constexpr size_t kScryptBytes = 48;        // more than the order of P-256, so that the remainder is nearly uniform
constexpr uint64_t kScryptCost = 1 << 15;  // 32 MiB; tokens are random, this guards those that users invent
constexpr const char* kNotBefore = "20000101000000Z";
constexpr const char* kNotAfter = "99991231235959Z";

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
template <typename T, auto Free>
using Owned = std::unique_ptr<T, Deleter<Free>>;
using Key = Owned<EVP_PKEY, EVP_PKEY_free>;
using Certificate = Owned<X509, X509_free>;
using Bio = Owned<BIO, BIO_free_all>;

std::string openssl_reason() {
  char text[256] = "unknown";
  if (const unsigned long code = ERR_get_error(); code != 0) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return text;
}

void require(bool ok, const char* what) {
  if (!ok) throw IoError(std::string("OpenSSL cannot ") + what + ": " + openssl_reason());
}

std::string pem(const std::function<int(BIO*)>& write) {
  Bio bio(BIO_new(BIO_s_mem()));
  require(bio && write(bio.get()) == 1, "write PEM");
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

// The P-256 key whose private part is scrypt(token), reduced to [1, order - 1].
Key authority_key(const ClusterToken& token) {
  const std::string salt = "tutti cluster authority v1 " + token.cluster_id();
  unsigned char bytes[kScryptBytes];
  require(EVP_PBE_scrypt(token.text().data(), token.text().size(), reinterpret_cast<const unsigned char*>(salt.data()),
                         salt.size(), kScryptCost, 8, 1, 64u << 20, bytes, sizeof bytes) == 1,
          "derive the cluster key");
  Owned<EC_GROUP, EC_GROUP_free> group(EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1));
  Owned<BN_CTX, BN_CTX_free> context(BN_CTX_new());
  Owned<BIGNUM, BN_clear_free> secret(BN_bin2bn(bytes, sizeof bytes, nullptr));
  OPENSSL_cleanse(bytes, sizeof bytes);
  Owned<BIGNUM, BN_free> bound(BN_dup(EC_GROUP_get0_order(group.get())));
  require(secret && bound && BN_sub_word(bound.get(), 1) == 1 &&
              BN_mod(secret.get(), secret.get(), bound.get(), context.get()) == 1 &&
              BN_add_word(secret.get(), 1) == 1,
          "derive the cluster key");
  Owned<EC_POINT, EC_POINT_free> point(EC_POINT_new(group.get()));
  require(EC_POINT_mul(group.get(), point.get(), secret.get(), nullptr, nullptr, context.get()) == 1,
          "derive the cluster key");
  std::vector<unsigned char> public_key(65);
  require(EC_POINT_point2oct(group.get(), point.get(), POINT_CONVERSION_UNCOMPRESSED, public_key.data(),
                             public_key.size(), context.get()) == public_key.size(),
          "derive the cluster key");

  Owned<OSSL_PARAM_BLD, OSSL_PARAM_BLD_free> builder(OSSL_PARAM_BLD_new());
  require(OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) == 1 &&
              OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_PRIV_KEY, secret.get()) == 1 &&
              OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, public_key.data(),
                                               public_key.size()) == 1,
          "build the cluster key");
  Owned<OSSL_PARAM, OSSL_PARAM_free> params(OSSL_PARAM_BLD_to_param(builder.get()));
  Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free> import(EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  EVP_PKEY* key = nullptr;
  require(EVP_PKEY_fromdata_init(import.get()) == 1 &&
              EVP_PKEY_fromdata(import.get(), &key, EVP_PKEY_KEYPAIR, params.get()) == 1,
          "build the cluster key");
  return Key(key);
}

void add_extension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  Owned<X509_EXTENSION, X509_EXTENSION_free> extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  require(extension && X509_add_ext(certificate, extension.get(), -1) == 1, "add a certificate extension");
}

std::string authority_name(const ClusterToken& token) { return "tutti cluster " + token.cluster_id(); }

Certificate new_certificate(const std::string& subject, EVP_PKEY* key) {
  Certificate certificate(X509_new());
  unsigned char serial[16];
  require(RAND_bytes(serial, sizeof serial) == 1, "draw a serial number");
  serial[0] &= 0x7f;
  Owned<BIGNUM, BN_free> number(BN_bin2bn(serial, sizeof serial, nullptr));
  X509_NAME* name = X509_get_subject_name(certificate.get());
  require(X509_set_version(certificate.get(), X509_VERSION_3) == 1 &&
              BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate.get())) != nullptr &&
              ASN1_TIME_set_string(X509_getm_notBefore(certificate.get()), kNotBefore) == 1 &&
              ASN1_TIME_set_string(X509_getm_notAfter(certificate.get()), kNotAfter) == 1 &&
              X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                         reinterpret_cast<const unsigned char*>(subject.c_str()), -1, -1, 0) == 1 &&
              X509_set_pubkey(certificate.get(), key) == 1,
          "fill a certificate");
  return certificate;
}

Certificate authority_certificate(const ClusterToken& token, EVP_PKEY* key) {
  Certificate certificate = new_certificate(authority_name(token), key);
  X509* raw = certificate.get();
  require(X509_set_issuer_name(raw, X509_get_subject_name(raw)) == 1, "name the authority");
  add_extension(raw, raw, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  add_extension(raw, raw, NID_key_usage, "critical,keyCertSign");
  add_extension(raw, raw, NID_subject_key_identifier, "hash");
  require(X509_sign(raw, key, EVP_sha256()) > 0, "sign the authority");
  return certificate;
}

Certificate leaf_certificate(X509* authority, EVP_PKEY* authority_key, EVP_PKEY* key) {
  Certificate certificate = new_certificate(kTlsName, key);
  X509* raw = certificate.get();
  require(X509_set_issuer_name(raw, X509_get_subject_name(authority)) == 1, "name the issuer");
  add_extension(raw, authority, NID_basic_constraints, "critical,CA:FALSE");
  add_extension(raw, authority, NID_ext_key_usage, "serverAuth,clientAuth");
  add_extension(raw, authority, NID_subject_alt_name, (std::string("DNS:") + kTlsName).c_str());
  add_extension(raw, authority, NID_authority_key_identifier, "keyid");
  require(X509_sign(raw, authority_key, EVP_sha256()) > 0, "sign a certificate");
  return certificate;
}

Certificate parse_certificate(const std::string& text) {
  Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  require(certificate != nullptr, "read a certificate");
  return certificate;
}

// The TLS client of the probe: our certificate, no verification (the peer's certificate is what we want to see).
Owned<SSL_CTX, SSL_CTX_free> probe_context(const TlsIdentity& identity) {
  Owned<SSL_CTX, SSL_CTX_free> context(SSL_CTX_new(TLS_client_method()));
  Certificate certificate = parse_certificate(identity.certificate);
  Bio bio(BIO_new_mem_buf(identity.private_key.data(), static_cast<int>(identity.private_key.size())));
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  require(context && key && SSL_CTX_use_certificate(context.get(), certificate.get()) == 1 &&
              SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1,
          "prepare TLS");
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  constexpr unsigned char kAlpn[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context.get(), kAlpn, sizeof kAlpn);
  return context;
}

// Drives the handshake on a non-blocking socket. kNotTutti when the peer does not speak TLS in time; a connection that is closed
// says nothing against the peer, a head that ends or only starts does that.
ProbeResult handshake(SSL* ssl, int fd, Deadline deadline, std::string* detail) {
  while (true) {
    ERR_clear_error();
    const int n = SSL_connect(ssl);
    if (n == 1) return ProbeResult::kOk;
    const int error = SSL_get_error(ssl, n);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      const bool closed = error != SSL_ERROR_SSL || ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
      *detail = closed ? "it closed the connection, as a head that starts or ends" : openssl_reason();
      return closed ? ProbeResult::kRefused : ProbeResult::kNotTutti;
    }
    pollfd entry{fd, static_cast<short>(error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT), 0};
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    if (ms <= 0 || ::poll(&entry, 1, static_cast<int>(std::min<int64_t>(ms, 60'000))) == 0) {
      *detail = "it does not answer";
      return ProbeResult::kNotTutti;
    }
  }
}

}  // namespace

TlsIdentity issue_identity(const ClusterToken& token) {
  const Key ca_key = authority_key(token);
  const Certificate ca = authority_certificate(token, ca_key.get());
  const Key key(EVP_EC_gen("P-256"));
  require(key != nullptr, "make a key");
  const Certificate leaf = leaf_certificate(ca.get(), ca_key.get(), key.get());
  TlsIdentity identity;
  identity.authority = pem([&](BIO* bio) { return PEM_write_bio_X509(bio, ca.get()); });
  identity.certificate = pem([&](BIO* bio) { return PEM_write_bio_X509(bio, leaf.get()); });
  identity.private_key = pem(
      [&](BIO* bio) { return PEM_write_bio_PKCS8PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr); });
  return identity;
}

Probe probe_head(const std::string& address, int port, const TlsIdentity& identity, Deadline deadline) {
  std::string reason;
  const Fd socket = connect_tcp(address, port, deadline, &reason);
  if (!socket) return {ProbeResult::kRefused, reason};
  const auto context = probe_context(identity);
  Owned<SSL, SSL_free> ssl(SSL_new(context.get()));
  require(ssl && SSL_set_fd(ssl.get(), socket.get()) == 1 && SSL_set_tlsext_host_name(ssl.get(), kTlsName) == 1,
          "prepare TLS");
  const ProbeResult result = handshake(ssl.get(), socket.get(), deadline, &reason);
  if (result != ProbeResult::kOk) return {result, reason};

  const Certificate peer(SSL_get1_peer_certificate(ssl.get()));
  if (peer == nullptr || X509_check_host(peer.get(), kTlsName, 0, 0, nullptr) != 1) {
    return {ProbeResult::kNotTutti, "its certificate is not one of tutti"};
  }
  const Certificate authority = parse_certificate(identity.authority);
  if (X509_verify(peer.get(), X509_get0_pubkey(authority.get())) != 1) {
    ERR_clear_error();
    return {ProbeResult::kWrongToken, "the cluster token differs"};
  }
  SSL_shutdown(ssl.get());
  return {ProbeResult::kOk, ""};
}

}  // namespace tutti
