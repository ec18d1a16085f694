package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/rollout-rl/rollout/sink/failpoint"
)

// A bucket is a Store in the S3 API.
type bucket struct {
	place
	ctx    context.Context //nolint:containedctx // Open binds it
	fs     FS              // of local files
	core   *minio.Core
	creds  *credentials.Credentials
	tries  int // the maximum number of tries; 0: no limit
	outage *outage
	dates  *dates
}

func openBucket(ctx context.Context, p place, opts Options) (Store, error) {
	t := newTransport(opts)
	creds := credentials.New(new(chain))
	core, err := minio.NewCore(p.host, &minio.Options{
		Creds: creds, Secure: p.secure, Region: p.region, Transport: t,
		MaxRetries: 1, // do repeats requests
	})
	if err != nil {
		return nil, &Error{Path: p.String(), Op: "open", Err: cause(ErrLocation, printable(err.Error()), "correct the endpoint")}
	}
	context.AfterFunc(ctx, t.base.CloseIdleConnections)
	b := &bucket{place: p, ctx: ctx, fs: opts.FS, core: core, creds: creds, outage: &outage{log: opts.Log}, dates: &t.dates, tries: 4}
	err = b.do("open", "", func() error {
		next, stop := iter.Pull(core.ListObjectsIter(ctx, p.bucket, minio.ListObjectsOptions{Prefix: p.key(""), Recursive: true, MaxKeys: 1, FetchOwner: new(false)}))
		defer stop()
		first, _ := next()
		return errors.Join(first.Err, ctx.Err())
	})
	b.tries = 0
	if err != nil {
		t.base.CloseIdleConnections()
		return nil, err
	}
	return b, nil
}

func (b *bucket) Sub(prefix string) Store {
	sub := *b
	sub.prefix = b.key(prefix)
	return &sub
}

func (b *bucket) PutNew(name string, body []byte) error {
	return b.do("put", name, func() error {
		var opts minio.PutObjectOptions
		opts.SetMatchETagExcept("*")
		err := b.put(name, bytes.NewReader(body), int64(len(body)), sha256.Sum256(body), opts)
		if minio.ToErrorResponse(err).StatusCode != http.StatusPreconditionFailed {
			return err
		}
		// An earlier try can have created the object, although its answer was lost.
		got, err := b.get(name)
		switch {
		case minio.ToErrorResponse(err).Code == minio.NoSuchKey:
			return errors.New("the store reports that the object exists, and that it does not")
		case err != nil:
			return &Error{Op: "read", Err: err}
		case !bytes.Equal(got, body):
			return fs.ErrExist
		}
		return nil
	})
}

func (b *bucket) Put(name string, body []byte) error {
	return b.do("put", name, func() error {
		return b.put(name, bytes.NewReader(body), int64(len(body)), sha256.Sum256(body), minio.PutObjectOptions{})
	})
}

// put makes one request. The server refuses the body if it does not match the SHA-256, which is part
// of the signature. Servers that support checksums also store it.
func (b *bucket) put(name string, r io.Reader, size int64, sum [sha256.Size]byte, opts minio.PutObjectOptions) error {
	stored := base64.StdEncoding.EncodeToString(sum[:])
	opts.UserMetadata = map[string]string{"X-Amz-Checksum-Sha256": stored}
	opts.DisableContentSha256 = true // do not sign the body again in chunks
	info, err := b.core.PutObject(b.ctx, b.bucket, b.key(name), r, size, "", hex.EncodeToString(sum[:]), opts)
	if err == nil && info.ChecksumSHA256 != "" && info.ChecksumSHA256 != stored {
		return cause(ErrContent, "the store received other bytes", "check the network and the memory of this machine")
	}
	return err
}

func (b *bucket) PutFile(name, file string, sum [sha256.Size]byte) (err error) {
	local := func(err error) error { return &Error{Path: file, Op: "read", Err: err} }
	f, err := b.fs.Open(file)
	if err != nil {
		return local(err)
	}
	defer closeInto(f, &err)
	size, err := f.Size()
	if err != nil {
		return local(err)
	}
	if size > MaxPut {
		return local(fmt.Errorf("the file has %d bytes, but a bucket takes at most %d in one put: use smaller shards", size, MaxPut))
	}
	err = b.do("put", name, func() error {
		err := b.put(name, io.NewSectionReader(f, 0, size), size, sum, minio.PutObjectOptions{})
		switch code := minio.ToErrorResponse(err).Code; {
		case code == minio.XAmzContentSHA256Mismatch, code == minio.BadDigest:
			return cause(ErrContent, file+" does not have the expected SHA-256", "check the disk")
		case err != nil:
			return err
		}
		if err := b.check(name, size, sum); err != nil {
			return &Error{Op: "read", Err: err}
		}
		return nil
	})
	if err != nil {
		return err
	}
	failpoint.Hit(failpoint.ShardRenamed)
	if err := b.fs.Remove(file); err != nil {
		return local(err)
	}
	return nil
}

// check compares a stored object with the size and the SHA-256 of its file.
func (b *bucket) check(name string, size int64, sum [sha256.Size]byte) error {
	info, err := b.stat(name)
	switch {
	case minio.ToErrorResponse(err).Code == minio.NoSuchKey:
		return errors.New("the store does not have the object that it has stored")
	case err != nil:
		return err
	case info.Size != size:
		return cause(ErrContent, fmt.Sprintf("the store has %d bytes of %d", info.Size, size), "check the store")
	case info.ChecksumSHA256 != "" && info.ChecksumSHA256 != base64.StdEncoding.EncodeToString(sum[:]):
		return cause(ErrContent, "the stored object has another SHA-256", "check the store")
	}
	return nil
}

// stat describes an object. The answer to a HEAD has no body, and so an error has no code. If a
// request is refused, stat makes a GET to learn why.
func (b *bucket) stat(name string) (minio.ObjectInfo, error) {
	info, err := b.core.StatObject(b.ctx, b.bucket, b.key(name), minio.StatObjectOptions{Checksum: true})
	if s := minio.ToErrorResponse(err).StatusCode; s/100 == 4 && s != http.StatusNotFound {
		var body io.ReadCloser
		if body, info, _, err = b.core.GetObject(b.ctx, b.bucket, b.key(name), minio.GetObjectOptions{}); err == nil {
			err = body.Close()
		}
	}
	return info, err
}

func (b *bucket) Get(name string) (body []byte, err error) {
	err = b.do("read", name, func() error {
		body, err = b.get(name)
		return err
	})
	return body, err
}

func (b *bucket) get(name string) (_ []byte, err error) {
	r, info, _, err := b.core.GetObject(b.ctx, b.bucket, b.key(name), minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	defer closeInto(r, &err)
	if info.Size > MaxPut {
		return nil, cause(ErrContent, fmt.Sprintf("the object has %d bytes, which is more than %d", info.Size, MaxPut), "check the name")
	}
	body, err := io.ReadAll(io.LimitReader(r, MaxPut))
	if err == nil && info.Size >= 0 && int64(len(body)) != info.Size {
		err = io.ErrUnexpectedEOF
	}
	return body, err
}

func (b *bucket) List(prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		first := len(b.key(""))
		opts := minio.ListObjectsOptions{Prefix: b.key(prefix), Recursive: true, FetchOwner: new(false)}
		if after != "" {
			opts.StartAfter = b.key(after)
		}
		more := true
		err := b.do("list", prefix, func() error {
			for o := range b.core.ListObjectsIter(b.ctx, b.bucket, opts) {
				if o.Err != nil {
					return o.Err
				}
				if o.Key <= opts.StartAfter || len(o.Key) < first {
					return cause(ErrContent, "the list is not in order at "+printable(o.Key), "use a store that sorts its lists")
				}
				opts.StartAfter = o.Key // the next try continues here
				// Other programs create keys that end with a slash, to show a folder.
				if name := o.Key[first:]; checkName(name) == nil {
					if more = yield(Info{name, o.Size, o.LastModified}, nil); !more {
						return nil
					}
				}
			}
			return b.ctx.Err()
		})
		if err != nil && more {
			yield(Info{}, err)
		}
	}
}

func (b *bucket) Delete(name string) error {
	return b.do("delete", name, func() error {
		err := b.core.RemoveObject(b.ctx, b.bucket, b.key(name), minio.RemoveObjectOptions{})
		if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
			return nil
		}
		return err
	})
}

func (b *bucket) Now() (time.Time, error) {
	last := b.dates.last.Load()
	if last == nil {
		return time.Time{}, &Error{Path: b.String(), Op: "read", Err: cause(ErrContent, "the answers have no Date", "use a store that sends this header")}
	}
	return last.date.Add(time.Since(last.at)), nil
}
