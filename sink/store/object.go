package store

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"
)

// An object is an object of a bucket, at the version that had the ETag.
type object struct {
	b    *bucket
	name string
	etag string
	size int64
	sum  string // see SHA256
}

func (b *bucket) Open(name string) (Object, error) {
	o := &object{b: b, name: name}
	err := b.do("read", name, func() error {
		info, err := b.stat(name)
		o.etag, o.size = info.ETag, info.Size
		if sum, err := base64.StdEncoding.DecodeString(info.ChecksumSHA256); err == nil {
			o.sum = hex.EncodeToString(sum)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

func (o *object) Size() int64    { return o.size }
func (o *object) SHA256() string { return o.sum }
func (o *object) Close() error   { return nil }

func (o *object) ReadAt(p []byte, off int64) (n int, err error) {
	var end error
	if rest := max(o.size-off, 0); int64(len(p)) > rest {
		p, end = p[:rest], io.EOF
	}
	err = o.b.do("read", o.name, func() error {
		if off < 0 {
			return cause(ErrContent, "the offset is negative", "correct the caller")
		}
		for n < len(p) {
			m, err := o.read(p[n:], off+int64(n))
			n += m
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = end
	}
	return n, err
}

// read fills p with one request. If the request breaks off, read returns the number of valid bytes.
func (o *object) read(p []byte, off int64) (n int, err error) {
	var opts minio.GetObjectOptions
	if err := opts.SetRange(off, off+int64(len(p))-1); err != nil {
		return 0, err
	}
	if err := opts.SetMatchETag(o.etag); err != nil {
		return 0, err
	}
	changed := cause(ErrChanged, "its ETag was "+printable(o.etag), "open it again")
	r, info, header, err := o.b.core.GetObject(o.b.ctx, o.b.bucket, o.b.key(o.name), opts)
	if minio.ToErrorResponse(err).StatusCode == http.StatusPreconditionFailed {
		return 0, changed
	}
	if err != nil {
		return 0, err
	}
	defer closeInto(r, &err)
	if info.ETag != o.etag {
		return 0, changed
	}
	want := fmt.Sprintf("bytes %d-%d/", off, off+int64(len(p))-1)
	if got := header.Get("Content-Range"); !strings.HasPrefix(got, want) && (off > 0 || int64(len(p)) != o.size) {
		return 0, cause(ErrContent, fmt.Sprintf("asked for %s, got %s", strings.TrimSuffix(want, "/"), printable(got)), "use a store that supports ranges")
	}
	n, err = io.ReadFull(r, p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// closeInto closes c. If the close fails and *err is nil, closeInto sets *err.
func closeInto(c io.Closer, err *error) {
	if cerr := c.Close(); *err == nil {
		*err = cerr
	}
}
