package store_test

import (
	"errors"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

// TestMistakes tests that each mistake is one line that says what is wrong, where, and what to do.
func TestMistakes(t *testing.T) {
	t.Parallel()
	server, _ := newServer()
	plain := serve(t, server)
	secure := httptest.NewUnstartedServer(server)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	answers := func(status int, code string) string {
		return serve(t, &storetest.Proxy{Server: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			storetest.Answer(status, code)(w, r, nil)
		})})
	}
	html := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>hello\nthere")) }))
	for _, tt := range []struct {
		location string
		want     error
		text     string
	}{
		{"", store.ErrLocation, "use a folder or s3://bucket/prefix"},
		{"gs://bucket/run", store.ErrLocation, "Google Cloud Storage is not supported"},
		{"az://container/run", store.ErrLocation, "Azure is not supported"},
		{"abfs://container@account/run", store.ErrLocation, "Azure is not supported"},
		{"s3a://bucket/run", store.ErrLocation, "use a folder or s3://"},
		{"https://bucket.host/run", store.ErrLocation, "use s3://bucket/prefix?endpoint_override=https://"},
		{"s3://AKIA:hidden@bucket/run", store.ErrLocation, "set AWS_ACCESS_KEY_ID"},
		{"s3://AKIA:hid%zzden@bucket/run", store.ErrLocation, "use a folder or s3://"},
		{"s3://bucket/run?endpoint_override=https://AKIA:hidden@host", store.ErrLocation, "endpoint_override is not a valid endpoint"},
		{"s3://bucket/run?endpoint_override=storage.googleapis.com", store.ErrLocation, "Google Cloud Storage is not supported"},
		{"s3://bucket/run?endpoint=x", store.ErrLocation, `the parameter "endpoint" is unknown`},
		{"s3://bucket/run?region=a&region=b", store.ErrLocation, "repeated"},
		{"s3://bucket/run#1", store.ErrLocation, "write %23"},
		{"s3://bucket/a//b", store.ErrLocation, "the prefix is not a valid path"},
		{"s3://Bucket/run", store.ErrLocation, "invalid name"},
		{"s3://bucket--use1-az4--x-s3/run", store.ErrLocation, "directory bucket"},
		{strings.Replace(plain, "bucket", "missing", 1), store.ErrNoBucket, "NoSuchBucket from http://127.0.0.1:"},
		{strings.Replace(plain, "http://127.0.0.1:", "https://127.0.0.1:", 1), store.ErrTLS, "add &scheme=http"},
		{"s3://bucket/run?endpoint_override=" + secure.URL, store.ErrTLS, "SSL_CERT_FILE"},
		{"s3://bucket/run?endpoint_override=http://127.0.0.1:" + closedPort(t), store.ErrUnreachable, "connection refused): check http://127.0.0.1:"},
		{html, store.ErrUnreachable, "check http://"},
		{answers(403, "AccessDenied"), fs.ErrPermission, "allow s3:ListBucket"},
		{answers(403, "SignatureDoesNotMatch"), store.ErrCredentials, "correct AWS_ACCESS_KEY_ID"},
		{answers(403, "InvalidAccessKeyId"), store.ErrCredentials, "correct AWS_ACCESS_KEY_ID"},
		{answers(400, "ExpiredToken"), store.ErrCredentials, "refresh"},
		{answers(403, "RequestTimeTooSkewed"), store.ErrClock, "synchronize"},
		{answers(403, "QuotaExceeded"), store.ErrFull, "403 QuotaExceeded): free space in it, or raise the quota"},
		{answers(507, "Full"), store.ErrFull, "507 Full): free space in it"},
		{answers(503, "SlowDown"), store.ErrUnreachable, "503 SlowDown"},
		{answers(418, "Teapot"), nil, "418 Teapot: Teapot"},
	} {
		_, err := store.Open(t.Context(), tt.location, store.Options{GiveUp: 200 * time.Millisecond})
		_, typed := errors.AsType[*store.Error](err)
		if !typed || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %v with %q", tt.location, err, tt.want, tt.text)
		}
		for _, secret := range []string{storetest.Key, storetest.Secret, "hidden", "hid%", "AKIA"} {
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %v contains a secret", tt.location, err)
			}
		}
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// TestDenied tests that a missing permission names the operation, also after a HEAD, whose answer has no
// body.
func TestDenied(t *testing.T) {
	t.Parallel()
	server, proxy := newServer()
	s := open(t, serve(t, proxy), store.Options{})
	if err := s.PutNew("a", nil); err != nil {
		t.Fatal(err)
	}
	server.Denied = []string{http.MethodPut, http.MethodGet, http.MethodHead, http.MethodDelete}
	_, get := s.Get("a")
	_, opened := s.Open("a")
	for allow, err := range map[string]error{
		"s3:PutObject": s.PutNew("b", nil), "s3:GetObject": get, "s3:GetObject ": opened, "s3:DeleteObject": s.Delete("a"),
	} {
		if !errors.Is(err, fs.ErrPermission) || !strings.HasSuffix(err.Error(), "allow "+strings.TrimSpace(allow)) {
			t.Errorf("%v, want a missing permission %s", err, allow)
		}
	}
	server.Denied = nil
	proxy.Plan(func(r *http.Request) storetest.Fault { return storetest.Answer(403, "RequestTimeTooSkewed") })
	if _, err := s.Open("a"); !errors.Is(err, store.ErrClock) {
		t.Errorf("Open = %v, want ErrClock", err)
	}
}

// TestProbeRefuses tests that a store that ignores conditions is refused, and that the probe leaves
// nothing behind.
func TestProbeRefuses(t *testing.T) {
	t.Parallel()
	server, _ := newServer()
	server.Unconditional = true
	s := open(t, serve(t, server), store.Options{})
	err := store.Probe(s)
	if !errors.Is(err, store.ErrNoConditions) || !strings.HasPrefix(err.Error(), "s3://bucket/run: ") || !strings.Contains(err.Error(), "use a store with conditional puts") {
		t.Errorf("Probe = %v", err)
	}
	if keys := server.Keys("bucket"); len(keys) > 0 {
		t.Errorf("left behind: %q", keys)
	}
	_, proxy := newServer()
	s = open(t, serve(t, proxy), store.Options{})
	proxy.Plan(storetest.First(1, http.MethodPut, storetest.Answer(501, "NotImplemented")))
	if err := store.Probe(s); !errors.Is(err, store.ErrNoConditions) {
		t.Errorf("Probe after 501 = %v, want ErrNoConditions", err)
	}
}

// TestUnconditional tests that real stores that ignore conditions are refused.
func TestUnconditional(t *testing.T) {
	t.Parallel()
	for named := range strings.FieldsSeq(os.Getenv("UNCONDITIONAL_STORES")) {
		name, location, _ := strings.Cut(named, "=")
		if err := store.Probe(open(t, location, store.Options{})); !errors.Is(err, store.ErrNoConditions) {
			t.Errorf("%s: Probe = %v, want ErrNoConditions", name, err)
		}
	}
}

// linkFS is a file system whose links fail.
type linkFS struct {
	store.FS
	link func(from, to string) error
}

func (f linkFS) Link(from, to string) error {
	if err := f.link(from, to); err != nil {
		return &os.LinkError{Op: "link", Old: from, New: to, Err: err}
	}
	return nil
}

// TestFolderWithoutLinks tests that missing hard links are reported with a remedy, and not as a missing
// permission.
func TestFolderWithoutLinks(t *testing.T) {
	t.Parallel()
	for errno, want := range map[error]error{
		syscall.EPERM: store.ErrNoLinks, syscall.ENOTSUP: store.ErrNoLinks, syscall.ENOSYS: store.ErrNoLinks, syscall.EACCES: fs.ErrPermission,
	} {
		dir := t.TempDir()
		s := open(t, dir, store.Options{FS: linkFS{store.OS(), func(string, string) error { return errno }}})
		err := store.Probe(s)
		if !errors.Is(err, want) || errors.Is(err, store.ErrNoLinks) && errors.Is(err, fs.ErrPermission) {
			t.Errorf("%v: Probe() = %v, want %v alone", errno, err, want)
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Errorf("left behind: %v, %v", files, err)
		}
	}
}

// TestFolderLinkWhoseAnswerWasLost tests a network file system that reports that the name exists because
// the answer to its own link was lost.
func TestFolderLinkWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), store.Options{FS: linkFS{store.OS(), func(from, to string) error {
		return errors.Join(os.Link(from, to), syscall.EEXIST)
	}}})
	if err := s.PutNew("sub/1", []byte("one")); err != nil {
		t.Error(err)
	}
	if err := s.PutNew("sub/1", []byte("two")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("PutNew = %v, want ErrExist", err)
	}
	wantBody(t, s, "sub/1", "one")
}

// TestCredentials tests the sources of credentials, and that expired credentials are read again. It
// changes the environment, so it is not parallel.
func TestCredentials(t *testing.T) {
	_, proxy := newServer()
	location := serve(t, proxy)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	_, err := store.Open(t.Context(), location, store.Options{})
	if !errors.Is(err, store.ErrCredentials) || !strings.Contains(err.Error(), "none were found") || strings.Contains(err.Error(), storetest.Secret) {
		t.Errorf("without credentials: %v", err)
	}
	file := filepath.Join(t.TempDir(), "credentials")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	write := func(key string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("[default]\naws_access_key_id = "+key+"\naws_secret_access_key = s3cret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("wrong-key")
	_, err = store.Open(t.Context(), location, store.Options{})
	if !errors.Is(err, store.ErrCredentials) || strings.Contains(err.Error(), "wrong-key") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("with a wrong key: %v", err)
	}
	write(storetest.Key)
	s := open(t, location, store.Options{})
	proxy.Plan(func(r *http.Request) storetest.Fault {
		if !strings.Contains(r.Header.Get("Authorization"), "Credential="+storetest.Key+"/") {
			return nil // the server refuses it
		}
		write("new-" + storetest.Key)
		return storetest.Answer(400, "ExpiredToken")
	})
	err = s.PutNew("a", nil)
	if !errors.Is(err, store.ErrCredentials) || !strings.Contains(err.Error(), "InvalidAccessKeyId") {
		t.Errorf("PutNew = %v, want that the new key was read and refused", err)
	}
}

// TestEndpoint tests the settings of the environment. It changes the environment, so it is not parallel.
func TestEndpoint(t *testing.T) {
	server, _ := newServer()
	location := serve(t, server)
	bare, endpoint, _ := strings.Cut(location, "?endpoint_override=")
	host := strings.TrimPrefix(endpoint, "http://")
	open(t, bare+"?scheme=http&endpoint_override="+host, store.Options{})
	t.Setenv("AWS_ENDPOINT_URL", endpoint)
	open(t, bare, store.Options{})
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:"+closedPort(t))
	if _, err := store.Open(t.Context(), bare, store.Options{}); !errors.Is(err, store.ErrUnreachable) {
		t.Errorf("Open = %v, want that AWS_ENDPOINT_URL_S3 is used", err)
	}
	t.Setenv("AWS_REGION", "eu-north-1")
	var n store.Requests
	if s := open(t, location, store.Options{Requests: &n}); n.Other.Load() != 0 || s.String() != "s3://bucket/run" {
		t.Errorf("%s: %d lookups of the region, want none", s, n.Other.Load())
	}
}
