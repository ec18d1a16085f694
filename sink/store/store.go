package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"
)

// A Store holds named objects: the files of a folder, or the objects of a bucket below a prefix. A
// name is a path with slashes, such as data/part-1.parquet. It is not empty and contains no element
// "." or "..", no backslash and no control character. All methods are safe for concurrent use. All
// errors are of type *Error.
//
// If a bucket is away, the methods wait for it until the context of [Open] ends. If the context
// ends during a put or a delete, the outcome is unknown. The methods of a folder do not wait.
type Store interface {
	// PutNew durably creates an object. If the name is taken by other content, the error wraps
	// fs.ErrExist, and the object is unchanged. If the name is taken by exactly these bytes, PutNew
	// returns nil, because the answer to an earlier try can be lost. Two callers must therefore
	// never use the same bytes for the same name. The caller must not change body afterwards.
	PutNew(name string, body []byte) error
	// PutFile durably moves a local file into the store. The caller must have synced the file, and
	// must never have used the name before. sum is the SHA-256 of the file. In a folder, the file
	// is renamed, or copied from another file system. A bucket receives the file in one put of at
	// most [MaxPut] bytes, which is verified with sum; then the file is removed.
	PutFile(name, file string, sum [sha256.Size]byte) error
	// Put durably creates or replaces a small object. A reader sees the old or the new content, never
	// a part. If several callers put the same name, any of them can be last. The caller must not
	// change body afterwards.
	Put(name string, body []byte) error
	// Get returns the content of an object of at most [MaxPut] bytes, with one request. If there is
	// no such object, the error wraps fs.ErrNotExist.
	Get(name string) ([]byte, error)
	// Open opens an object for reading by range. If there is no such object, the error wraps
	// fs.ErrNotExist.
	Open(name string) (Object, error)
	// List yields the objects whose names begin with prefix and are greater than after, in the byte
	// order of their names. It ends after the first error. A store can omit objects that were
	// created or include objects that were deleted shortly before.
	List(prefix, after string) iter.Seq2[Info, error]
	// Delete deletes an object. It returns nil if there is no such object.
	Delete(name string) error
	// Now returns the current time by the clock that [Info].Time uses. For a bucket, this is the clock of
	// the server's last answer, and needs no request.
	Now() (time.Time, error)
	// Sub returns the part of the store whose names begin with prefix and a slash. Names of the part
	// do not contain the prefix. prefix must be a valid name.
	Sub(prefix string) Store
	// String returns the folder's path or s3://bucket/prefix. It never contains a credential.
	String() string
}

// An Object is an object that is open for reading. ReadAt is safe for concurrent use. It returns
// fewer bytes than requested only at the end of the object or with an error. If the object has been
// replaced since Open, the error wraps ErrChanged (bucket), or ReadAt reads the old content
// (folder).
type Object interface {
	io.ReaderAt
	io.Closer
	// Size returns the number of bytes.
	Size() int64
	// SHA256 returns the SHA-256 that the store has kept since the put, in lower-case hex. It is
	// empty if the store keeps none.
	SHA256() string
}

// An Info describes an object in a list.
type Info struct {
	Name string
	Size int64 // in bytes
	// Time is the time of the last put, by the clock of the store.
	Time time.Time
}

// MaxPut is the maximum size of an object in a bucket, in bytes. A multipart upload could be larger,
// but several servers ignore conditions on it.
const MaxPut = 256 << 20

// Options are optional settings of a store.
type Options struct {
	// FS is the file system of a folder, and of the local files of PutFile. The default is [OS].
	FS FS
	// Log receives one line when a bucket is away and one when it is back. By default, nothing is logged.
	Log *slog.Logger
	// Requests counts the requests to a bucket. The default is not to count them.
	Requests *Requests
	// Timeout ends a request if no byte is transferred for this time. The request is then repeated.
	// The default is 1 minute.
	Timeout time.Duration
}

// Requests counts requests to a bucket, including repeated requests.
type Requests struct {
	Put, Get, Head, List, Delete atomic.Int64
	// Other counts lookups of the bucket's region.
	Other atomic.Int64
}

// Take returns the numbers of requests since the last call, by kind: put, get, head, list, delete and
// other.
func (r *Requests) Take() map[string]int64 {
	return map[string]int64{
		"put": r.Put.Swap(0), "get": r.Get.Swap(0), "head": r.Head.Swap(0),
		"list": r.List.Swap(0), "delete": r.Delete.Swap(0), "other": r.Other.Swap(0),
	}
}

// Open opens the store at a location: the path of a folder, or an S3 URL as the package documentation
// describes. A folder need not exist. Open lists one object of a bucket to check the access. It tries
// at most 4 times, so that a wrong location is an error and not a wait.
//
// A bucket uses ctx for all of its operations. When ctx ends, they return its cause, and the bucket
// closes its idle connections. A folder does not use ctx.
func Open(ctx context.Context, location string, opts Options) (Store, error) {
	if opts.FS == nil {
		opts.FS = OS()
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Requests == nil {
		opts.Requests = new(Requests)
	}
	if opts.Timeout <= 0 {
		opts.Timeout = time.Minute
	}
	if !IsURL(location) {
		if location == "" {
			return nil, &Error{Path: `""`, Op: "open", Err: cause(ErrLocation, "it is empty", "use a folder or s3://bucket/prefix")}
		}
		return Folder(opts.FS, location), nil
	}
	p, err := parse(location)
	if err != nil {
		return nil, err
	}
	return openBucket(ctx, p, opts)
}

// Folder returns the store whose objects are the files of a folder.
func Folder(fsys FS, dir string) Store { return &folder{dir, fsys} }

// checkName returns an error if name is not the name of an object.
func checkName(name string) error {
	bad := func(r rune) bool { return r == '\\' || r == utf8.RuneError || unicode.IsControl(r) }
	if name == "." || !fs.ValidPath(name) || strings.ContainsFunc(name, bad) {
		return errors.New("not a valid name of an object")
	}
	return nil
}
