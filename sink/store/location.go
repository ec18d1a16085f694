package store

import (
	"cmp"
	"errors"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/minio/minio-go/v7/pkg/s3utils"
)

// A place is a bucket and a prefix in it.
type place struct {
	bucket string
	prefix string // "" or a path without a slash at its ends
	region string // "": the client looks the region up
	host   string // of the endpoint, with an optional port
	secure bool
}

func (p place) String() string { return strings.TrimSuffix("s3://"+p.bucket+"/"+p.prefix, "/") }

// key returns the key of a name, or of a prefix of names.
func (p place) key(name string) string {
	if p.prefix == "" {
		return name
	}
	return p.prefix + "/" + name
}

// endpoint returns the URL of the server, for messages.
func (p place) endpoint() string {
	if p.secure {
		return "https://" + p.host
	}
	return "http://" + p.host
}

const amazon = "s3.amazonaws.com"

// schemes are the schemes of other stores. These stores have no put-if-absent in the S3 API.
var schemes = map[string]string{
	"gs": "Google Cloud Storage", "gcs": "Google Cloud Storage",
	"az": "Azure", "azure": "Azure", "abfs": "Azure", "abfss": "Azure", "wasb": "Azure", "wasbs": "Azure",
}

// IsURL reports whether a location is a URL, and not the path of a folder. A URL of a store without its
// slashes, such as s3:/bucket, counts too: [Open] refuses it.
func IsURL(location string) bool {
	scheme, _, _ := strings.Cut(location, ":")
	scheme = strings.ToLower(scheme)
	return strings.Contains(location, "://") || schemes[scheme] != "" && scheme != location || strings.HasPrefix(strings.ToLower(location), "s3:")
}

// parse parses an S3 URL. Its errors never contain the part of the URL that can hold credentials.
func parse(location string) (place, error) {
	scheme, rest, _ := strings.Cut(location, ":")
	refuse := func(where, what, remedy string) (place, error) {
		return place{}, &Error{Path: where, Op: "open", Err: cause(ErrLocation, what, remedy)}
	}
	const use = "use a folder or s3://bucket/prefix"
	if name, ok := schemes[scheme]; ok {
		return refuse(scheme+"://", name+" is not supported", use)
	}
	switch {
	case scheme == "http" || scheme == "https":
		return refuse(scheme+"://", "a store has the scheme s3", "use s3://bucket/prefix?endpoint_override="+scheme+"://host:port")
	case scheme != "s3":
		return refuse(scheme+"://", "unknown scheme", use)
	case !strings.HasPrefix(rest, "//"):
		return refuse("s3:", "the URL does not begin with s3://", use)
	}
	u, err := url.Parse(location)
	if err != nil {
		if parsing, ok := errors.AsType[*url.Error](err); ok {
			err = parsing.Err // without the URL
		}
		return refuse("s3://", err.Error(), use)
	}
	p := place{bucket: u.Host, prefix: strings.Trim(u.Path, "/"), host: amazon, secure: true}
	switch {
	case u.User != nil:
		return refuse(p.String(), "the URL contains credentials", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use ~/.aws/credentials")
	case u.Fragment != "":
		return refuse(p.String(), "the URL contains #", "write %23")
	case s3utils.CheckValidBucketNameStrict(p.bucket) != nil:
		return refuse(p.String(), "the bucket has an invalid name", use)
	case strings.HasSuffix(p.bucket, "--x-s3"):
		return refuse(p.String(), "a directory bucket lists its objects in no order", "use a general purpose bucket")
	case p.prefix != "" && checkName(p.prefix) != nil:
		return refuse(p.String(), "the prefix is not a valid path", use)
	}
	return p.parameters(u.RawQuery)
}

// parameters returns p with the parameters of the URL and with the settings of the environment.
func (p place) parameters(query string) (place, error) {
	refuse := func(what, remedy string) (place, error) {
		return place{}, &Error{Path: p.String(), Op: "open", Err: cause(ErrLocation, what, remedy)}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return refuse("the parameters are not valid", "use ?region=…&endpoint_override=…&scheme=…")
	}
	for name, v := range values {
		if !slices.Contains([]string{"region", "endpoint_override", "scheme"}, name) || len(v) != 1 || v[0] == "" {
			return refuse("the parameter "+strconv.Quote(name)+" is unknown, empty or repeated", "use region, endpoint_override and scheme, each once")
		}
	}
	p.region = values.Get("region")
	from, endpoint := "endpoint_override", values.Get("endpoint_override")
	for _, v := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
		if endpoint == "" {
			from, endpoint = v, os.Getenv(v)
		}
	}
	if endpoint == "" {
		return p, nil
	}
	if !strings.Contains(endpoint, "://") {
		endpoint = cmp.Or(values.Get("scheme"), "https") + "://" + endpoint
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return refuse(from+" is not a valid endpoint", "use a host and a port, such as https://host:9000")
	}
	if s3utils.IsGoogleEndpoint(*u) {
		return refuse("Google Cloud Storage is not supported", "use a store with conditional puts")
	}
	p.host, p.secure = u.Host, u.Scheme == "https"
	if !s3utils.IsAmazonEndpoint(*u) {
		// Amazon's regions are looked up, because a bucket can be in another region.
		p.region = cmp.Or(p.region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	}
	return p, nil
}
