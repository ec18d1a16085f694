// Package storetest has an S3 server in memory and a proxy with faults, for tests of programs that
// use a bucket.
package storetest

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Key and Secret are the credentials that a [Server] accepts. It does not check signatures.
const (
	Key    = "test-key"
	Secret = "test-secret"
)

// Nowhere is the URL of an endpoint that cannot be reached. It is a default for tests, so that no URL
// without an endpoint leads to a public host.
const Nowhere = "http://127.0.0.1:1"

// Setenv sets the environment of this process to the credentials of a [Server], without any other
// setting of the user. Call it from TestMain.
func Setenv() {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": Key, "AWS_SECRET_ACCESS_KEY": Secret, "AWS_SESSION_TOKEN": "",
		"AWS_PROFILE": "", "AWS_SHARED_CREDENTIALS_FILE": "testdata/none", "AWS_CONFIG_FILE": "testdata/none",
		"AWS_ENDPOINT_URL": Nowhere, "AWS_ENDPOINT_URL_S3": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
		"AWS_EC2_METADATA_DISABLED": "true",
	} {
		_ = os.Setenv(name, value) // the names are valid
	}
}

// A Server is an S3 server with the part of the API that package store uses. The zero value has no
// buckets.
type Server struct {
	// Unconditional makes the server ignore If-None-Match.
	Unconditional bool
	// Denied contains the methods that are answered with AccessDenied.
	Denied []string
	// PageKeys is the number of keys in one page of a list. The default is 1000.
	PageKeys int
	// Ahead is how far the server's clock is ahead of the clock of this machine.
	Ahead time.Duration

	mu      sync.Mutex
	buckets map[string]map[string]object
}

type object struct {
	body []byte
	sum  string // x-amz-checksum-sha256
	time time.Time
}

func (s *Server) now() time.Time { return time.Now().Add(s.Ahead).UTC() }

func (o object) etag() string { return fmt.Sprintf(`"%x"`, md5.Sum(o.body)) }

// Create creates an empty bucket.
func (s *Server) Create(bucket string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buckets == nil {
		s.buckets = map[string]map[string]object{}
	}
	s.buckets[bucket] = map[string]object{}
}

// Keys returns the keys of a bucket, in order.
func (s *Server) Keys(bucket string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.buckets[bucket]))
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Read the body before the lock is taken: a slow client must not stop the others.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Date", s.now().Format(http.TimeFormat))
	objects, ok := s.buckets[bucket]
	sum := r.Header.Get("X-Amz-Content-Sha256")
	switch {
	case !strings.Contains(r.Header.Get("Authorization"), "Credential="+Key+"/"):
		refuse(w, http.StatusForbidden, "InvalidAccessKeyId")
	case !ok:
		refuse(w, http.StatusNotFound, "NoSuchBucket")
	case slices.Contains(s.Denied, r.Method):
		refuse(w, http.StatusForbidden, "AccessDenied")
	case r.Method == http.MethodPut && len(sum) == 64 && sum != fmt.Sprintf("%x", sha256.Sum256(body)):
		refuse(w, http.StatusBadRequest, "XAmzContentSHA256Mismatch")
	case r.URL.Query().Has("location"):
		reply(w, struct {
			XMLName xml.Name `xml:"LocationConstraint"`
		}{})
	case r.URL.Query().Has("list-type"):
		s.list(w, r.URL.Query(), objects)
	case r.Method == http.MethodPut:
		s.put(w, r, objects, key, body)
	case r.Method == http.MethodDelete:
		delete(objects, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		get(w, r, objects, key)
	}
}

func (s *Server) put(w http.ResponseWriter, r *http.Request, objects map[string]object, key string, body []byte) {
	if _, taken := objects[key]; taken && r.Header.Get("If-None-Match") == "*" && !s.Unconditional {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	o := object{body, r.Header.Get("X-Amz-Checksum-Sha256"), s.now()}
	objects[key] = o
	w.Header().Set("ETag", o.etag())
	w.Header().Set("X-Amz-Checksum-Sha256", o.sum)
}

func get(w http.ResponseWriter, r *http.Request, objects map[string]object, key string) {
	o, ok := objects[key]
	if !ok {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	w.Header().Set("ETag", o.etag())
	if r.Header.Get("Range") == "" {
		w.Header().Set("X-Amz-Checksum-Sha256", o.sum)
	}
	http.ServeContent(w, r, "", o.time, bytes.NewReader(o.body)) // Range, If-Match and HEAD
}

func (s *Server) list(w http.ResponseWriter, q url.Values, objects map[string]object) {
	type content struct {
		Key, LastModified string
		Size              int
	}
	var page struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		EncodingType          string   `xml:",omitempty"`
		KeyCount              int
		IsTruncated           bool
		NextContinuationToken string
		Contents              []content
	}
	encoded := func(key string) string { return key }
	if page.EncodingType = q.Get("encoding-type"); page.EncodingType == "url" {
		encoded = url.QueryEscape
	}
	limit := max(s.PageKeys, 0)
	if limit == 0 {
		limit = 1000
	}
	if n, err := strconv.Atoi(q.Get("max-keys")); err == nil {
		limit = min(limit, n)
	}
	after := q.Get("start-after")
	if token, err := hex.DecodeString(q.Get("continuation-token")); err == nil && len(token) > 0 {
		after = string(token)
	}
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if key <= after || !strings.HasPrefix(key, q.Get("prefix")) {
			continue
		}
		if len(page.Contents) == limit {
			page.IsTruncated, page.NextContinuationToken = true, hex.EncodeToString([]byte(after))
			break
		}
		o := objects[key]
		page.Contents = append(page.Contents, content{encoded(key), o.time.UTC().Format(time.RFC3339Nano), len(o.body)})
		after = key
	}
	page.KeyCount = len(page.Contents)
	reply(w, page)
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	reply(w, struct {
		XMLName       xml.Name `xml:"Error"`
		Code, Message string
	}{Code: code, Message: code})
}

func reply(w http.ResponseWriter, v any) { _ = xml.NewEncoder(w).Encode(v) } // the client has gone
