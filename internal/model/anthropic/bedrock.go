package anthropic

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/v2/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/pawl-run/pawl/internal/model"
	"github.com/pawl-run/pawl/internal/model/wire"
)

// bedrock is Amazon Bedrock. It has two APIs for the models: the runtime's InvokeModel,
// and Messages below /anthropic, which is spoken where the endpoint ends in that.
//
// The SDK's own package for Bedrock is not used: it prefers a token in the environment to
// the credentials that it is given, and changes the body after it was written. See
// decision 10.
type bedrock struct {
	address string
	region  string
	// service is the name that signatures are made for.
	service    string
	messages   bool
	connection *wire.Connection
}

func newBedrock(root string, config wire.Config, connection *wire.Connection) *bedrock {
	b := &bedrock{region: config.Platform.Bedrock.Region, service: "bedrock", connection: connection}
	switch {
	case strings.HasSuffix(root, "/anthropic"):
		b.messages, b.service = true, "bedrock-mantle"
		b.address = root + messagesPath
		return b
	case root == "":
		root = "https://bedrock-runtime." + b.region + "." + domainOf(b.region)
	}
	b.address = root + "/model/" + url.PathEscape(config.Model) + "/invoke"
	return b
}

// domainOf is the domain of the partition that a region is in.
func domainOf(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "amazonaws.com.cn"
	case strings.HasPrefix(region, "eusc-"):
		return "amazonaws.eu"
	default:
		return "amazonaws.com"
	}
}

func (b *bedrock) url() string         { return b.address }
func (b *bedrock) versionInBody() bool { return !b.messages }

// cachesRequests is false: Bedrock answers 400 to the member.
func (b *bedrock) cachesRequests() bool { return false }

// authorize takes an API key as it is, and signs with a key pair.
func (b *bedrock) authorize(_ context.Context, body []byte) (grant, *model.Error) {
	credential, failure := b.connection.Credential()
	switch {
	case failure != nil:
		return grant{}, failure
	case credential == "":
		return grant{}, wire.Unauthorized("platform bedrock needs a credential: an API key or an AWS key pair")
	case strings.HasPrefix(credential, "{"):
		pair, problem := readKeyPair(credential)
		if problem != "" {
			return grant{}, wire.Unauthorized(problem)
		}
		return b.signature(pair, body), nil
	case !wire.FitsHeader(credential):
		return grant{}, wire.Unauthorized("the API key has characters that no header can carry")
	default:
		return bearer(credential), nil
	}
}

// signature signs the request as it leaves the SDK.
func (b *bedrock) signature(pair aws.Credentials, body []byte) grant {
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	sign := func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		if err := v4.NewSigner().SignHTTP(r.Context(), pair, r, hash, b.service, b.region, b.connection.Now()); err != nil {
			return nil, err
		}
		return next(r)
	}
	return grant{
		options: []option.RequestOption{option.WithMiddleware(sign)},
		secrets: []string{pair.AccessKeyID, pair.SecretAccessKey, pair.SessionToken},
	}
}

// readKeyPair reads AWS credentials. The problem holds no value.
func readKeyPair(credentials string) (aws.Credentials, string) {
	members, err := wire.ParseObject([]byte(credentials))
	if err != nil {
		return aws.Credentials{}, "the credentials are not readable JSON: " + err.Error()
	}
	var pair aws.Credentials
	for name, field := range map[string]*string{
		"accessKeyId": &pair.AccessKeyID, "secretAccessKey": &pair.SecretAccessKey, "sessionToken": &pair.SessionToken,
	} {
		text, ok := members.Text(name)
		if !ok || !wire.FitsHeader(text) {
			return aws.Credentials{}, "the credentials' " + name + " is not a string that a header can carry"
		}
		*field = text
	}
	if pair.AccessKeyID == "" || pair.SecretAccessKey == "" {
		return aws.Credentials{}, "the credentials are JSON without accessKeyId and secretAccessKey"
	}
	return pair, ""
}
