package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/minio/minio-go/v7"
)

// Use errors.Is to test for these errors. A missing permission is fs.ErrPermission.
var (
	// ErrLocation means that a location is invalid, or that its kind of store is not supported.
	ErrLocation = errors.New("not a valid location")
	// ErrNoBucket means that the bucket does not exist.
	ErrNoBucket = errors.New("the bucket does not exist")
	// ErrCredentials means that the credentials are missing, wrong or expired.
	ErrCredentials = errors.New("the credentials are missing, wrong or expired")
	// ErrClock means that the clocks of this machine and of the store differ.
	ErrClock = errors.New("the clock of this machine is wrong")
	// ErrUnreachable means that the store does not answer, or that its answers are broken.
	ErrUnreachable = errors.New("the store cannot be reached")
	// ErrFull means that the store or the quota of the bucket is full.
	ErrFull = errors.New("the store is full")
	// ErrTLS means that no trusted TLS connection is possible.
	ErrTLS = errors.New("the TLS connection failed")
	// ErrNoConditions means that the store has no put-if-absent.
	ErrNoConditions = errors.New("the store ignores If-None-Match")
	// ErrNoLinks means that the file system of a folder lacks hard links.
	ErrNoLinks = errors.New("the file system does not support hard links")
	// ErrChanged means that an object was replaced while it was read.
	ErrChanged = errors.New("the object has been replaced")
	// ErrContent means that the content of a local file or of a stored object is not as expected.
	ErrContent = errors.New("the content is wrong")
)

// An Error reports a failed operation on a store. Its text is one line.
type Error struct {
	// Path is the path or the URL of the object. If the error does not concern one object, Path is
	// the location of the store.
	Path string
	// Op is the failed operation: open, put, read, list, delete or probe.
	Op  string
	Err error
}

func (e *Error) Error() string { return e.Path + ": " + e.Op + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// cause returns an error that wraps kind. Its text contains a detail and a remedy.
func cause(kind error, detail, remedy string) error {
	return fmt.Errorf("%w (%s): %s", kind, detail, remedy)
}

// permissions contains the permission that an operation needs.
var permissions = map[string]string{
	"open": "s3:ListBucket", "list": "s3:ListBucket", "put": "s3:PutObject", "read": "s3:GetObject", "delete": "s3:DeleteObject",
}

// explain returns the cause of a failed request, without any text that can hold a credential, and
// whether the same request can succeed later.
func (b *bucket) explain(op string, err error) (_ error, temporary bool) {
	r, ok := errors.AsType[minio.ErrorResponse](err)
	if !ok {
		return b.explainOther(err)
	}
	detail := printable(r.Code)
	if number := strconv.Itoa(r.StatusCode); !strings.HasPrefix(detail, number) {
		detail = number + " " + detail
	}
	switch r.Code {
	case minio.NoSuchKey:
		return fs.ErrNotExist, false
	case minio.NoSuchBucket:
		return cause(ErrNoBucket, detail+" from "+b.endpoint(), "create it, or correct the name or the endpoint"), false
	case minio.InvalidAccessKeyID, minio.SignatureDoesNotMatch, "InvalidToken", "InvalidClientTokenId":
		return cause(ErrCredentials, detail, "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws/credentials or the role"), false
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired":
		b.creds.Expire() // the next request asks the provider again
		return cause(ErrCredentials, detail, "refresh them, for example with aws sso login"), true
	case minio.RequestTimeTooSkewed:
		return cause(ErrClock, detail, "synchronize it, for example with chrony"), false
	case minio.AuthorizationHeaderMalformed, minio.InvalidRegion, "PermanentRedirect", "TemporaryRedirect":
		if r.Region == "" {
			return cause(ErrLocation, detail, "add ?region=… to the URL"), false
		}
		// Without a region in the URL, the client has now learned the region and uses it next time.
		return cause(ErrLocation, "the bucket is in region "+printable(r.Region), "add ?region="+printable(r.Region)+" to the URL"), b.region == ""
	case "NotImplemented":
		if op == "put" {
			return cause(ErrNoConditions, detail, needed), false
		}
	case "QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded":
		return cause(ErrFull, detail, "delete objects, or raise the quota"), true
	case "RequestTimeout", "IncompleteBody", minio.BadDigest, minio.XAmzContentSHA256Mismatch, "Throttling", "ThrottlingException":
		return cause(ErrUnreachable, detail, "check "+b.endpoint()), true
	}
	s := r.StatusCode
	switch {
	case s == http.StatusInsufficientStorage:
		return cause(ErrFull, detail, "delete objects, or raise the quota"), true
	case s == http.StatusForbidden || s == http.StatusUnauthorized:
		return cause(fs.ErrPermission, detail, "allow "+permissions[op]), false
	case s >= 500 && s != http.StatusNotImplemented, slices.Contains([]int{http.StatusConflict, http.StatusRequestTimeout, http.StatusTooManyRequests, 499}, s):
		return cause(ErrUnreachable, detail, "check "+b.endpoint()), true
	}
	return fmt.Errorf("%s: %s", detail, printable(r.Message)), false
}

// explainOther explains an error that is not an answer of the store.
func (b *bucket) explainOther(err error) (_ error, temporary bool) {
	if sent, ok := errors.AsType[*url.Error](err); ok {
		err = sent.Err // without the URL
	}
	if local, ok := errors.AsType[*fs.PathError](err); ok { // the file of PutFile
		return local, false
	}
	for _, own := range []error{fs.ErrExist, fs.ErrNotExist, ErrChanged, ErrContent, ErrNoConditions, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, own) {
			return err, false
		}
	}
	if errors.Is(err, ErrCredentials) {
		return err, true
	}
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		alert     tls.AlertError
	)
	detail := printable(err.Error())
	switch {
	case errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid), errors.As(err, &verify), errors.As(err, &alert):
		return cause(ErrTLS, detail, "correct the host, or set SSL_CERT_FILE to the certificates of "+b.endpoint()), false
	case errors.As(err, &record), strings.Contains(detail, "HTTP response to HTTPS client"):
		return cause(ErrTLS, detail, "add &scheme=http to the URL if the endpoint has no TLS"), false
	}
	return cause(ErrUnreachable, detail, "check "+b.endpoint()), true
}

// printable returns the first line of a text from a server, without control characters and cut to a
// length that fits into an error.
func printable(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	if len(s) > 200 {
		s = strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}
