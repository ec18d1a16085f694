package store

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// roleTimeout limits the search for a role. Outside of a cloud, the address of the metadata service
// does not answer.
const roleTimeout = 5 * time.Second

// A chain looks for credentials in the environment, in the files of ~/.aws and in the role of the
// machine, the container or the pod. Unlike the chain of minio-go, it does not continue without
// credentials, and it reports why a provider failed.
type chain struct {
	used    credentials.Provider
	forever bool // the credentials have no time at which they expire
}

func (c *chain) Retrieve() (credentials.Value, error) { return c.RetrieveWithCredContext(nil) }

func (c *chain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	ctx := context.Background()
	if cc != nil && cc.Context != nil {
		ctx = cc.Context
	}
	ctx, cancel := context.WithTimeout(ctx, roleTimeout)
	defer cancel()
	// The client of cc would count these requests.
	limited := &credentials.CredContext{Client: http.DefaultClient, Context: ctx}
	providers := []credentials.Provider{new(credentials.EnvAWS), new(credentials.FileAWSCredentials)}
	if hasRole() {
		providers = append(providers, new(credentials.IAM))
	}
	detail := "none were found"
	for _, p := range providers {
		v, err := p.RetrieveWithCredContext(limited)
		if err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "" {
			c.used, c.forever = p, v.Expiration.IsZero()
			return v, nil
		}
		if requesting, ok := errors.AsType[*url.Error](err); ok {
			err = requesting.Err
		}
		if _, file := p.(*credentials.FileAWSCredentials); err != nil && (!file || !errors.Is(err, fs.ErrNotExist)) {
			detail = printable(err.Error())
		}
	}
	return credentials.Value{}, cause(ErrCredentials, detail, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use ~/.aws/credentials or a role")
}

// IsExpired reports whether the credentials must be retrieved again. The provider of minio-go would
// read the file of keys again for each request.
func (c *chain) IsExpired() bool { return c.used == nil || !c.forever && c.used.IsExpired() }

// hasRole reports whether to look for a role. AWS_EC2_METADATA_DISABLED disables the role of a
// machine, as in the AWS tools.
func hasRole() bool {
	for _, v := range []string{"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		if os.Getenv(v) != "" {
			return true
		}
	}
	return os.Getenv("AWS_EC2_METADATA_DISABLED") != "true"
}
