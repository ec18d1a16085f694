package sink_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/rollout-rl/rollout/sink/store/storetest"
)

func TestMain(m *testing.M) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": storetest.Key, "AWS_SECRET_ACCESS_KEY": storetest.Secret, "AWS_SESSION_TOKEN": "",
		"AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
		"AWS_EC2_METADATA_DISABLED": "true",
	} {
		os.Setenv(name, value)
	}
	goleak.VerifyTestMain(m)
}
