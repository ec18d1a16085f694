// Package store keeps the files of a dataset in a folder or in a bucket. Package sink writes shards
// and the entries of a commit log into a [Store], and readers list and read them. Several processes
// on several machines can use one bucket.
//
// # Guarantees
//
// When a put returns nil, the object is durable, and every later read returns its whole content.
// [Store.PutNew] creates an object only if the name is free. If several writers use the same name,
// exactly one of them gets nil and all others get fs.ErrExist, even if answers are lost and requests
// are repeated. A process that is killed during PutNew must repeat the same bytes under the same name
// to learn whether it had created the object.
//
// A list proves nothing: a store can omit the newest objects. Only PutNew decides who owns a name.
//
// # Folders
//
// A folder can be on a local disk or on a network file system with hard links. A method never waits
// or repeats anything. The steps are:
//
//	PutNew    write .tmp-…, fsync, link to the name, remove .tmp-…, fsync the folder
//	PutFile   rename to the name, fsync the folder; from another file system, copy as in Put
//	Put       write .tmp-…, fsync, rename to the name, fsync the folder
//
// Missing folders are created, and their names are synced. Files whose names begin with .tmp- are not
// objects; a kill can leave them behind.
//
// # Buckets
//
// The location of a bucket is a URL that pyarrow accepts too:
//
//	s3://bucket/prefix
//	s3://bucket/prefix?region=eu-north-1
//	s3://bucket/prefix?endpoint_override=host:9000&scheme=http
//
//	region             the default for Amazon is to look it up, and for other stores AWS_REGION,
//	                   AWS_DEFAULT_REGION or to look it up
//	endpoint_override  the default is AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or Amazon
//	scheme             https, the default, or http
//
// The credentials come from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, from the
// profile AWS_PROFILE in ~/.aws (keys, SSO or credential_process), or from the role of the pod, the
// container or the machine. A URL cannot contain them. They never appear in a log or an error.
//
// The store must have conditional puts and sorted lists. Amazon S3, Cloudflare R2, MinIO, Ceph and
// versitygw have both. Use [Probe] to find out. Azure, Google Cloud Storage and Amazon's directory
// buckets are not supported.
//
// Each object is one put, without multipart uploads. PutNew sends If-None-Match: *. The signature of
// a put covers the SHA-256 of the body, and so the server refuses a damaged body. After an upload by
// PutFile, a HEAD compares the size, and also the SHA-256 if the server stores it. Reads by range
// require the ETag that Open has seen. A short or broken answer is requested again.
//
// # Waiting
//
// A method repeats a request after a 409, a 408, a 429, a 5xx, the answer that the store or its quota
// is full, a broken connection, a broken answer, or [Options.Timeout] without a byte. It also repeats it with new credentials after they expire. It
// repeats a put with the same bytes under the same name. The pauses grow from 50 ms to 2 s, with
// jitter. There is no limit on the number of tries: the end of the context ends the wait. If PutNew
// gets a 412, it compares the object with its bytes. If a 404 follows the 412, PutNew repeats the
// put. All other answers are errors at once.
//
// If an operation fails for 3 s, the log has one line, and another line when all operations that
// failed have succeeded.
//
// # Reading order
//
// store.go, location.go, errors.go; folder.go, fs.go; bucket.go, object.go, retry.go, transport.go,
// credentials.go; probe.go.
package store
