package sluice

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Config has the settings of a client in code. A zero value stands for the default, which docs/settings.md names.
type Config struct {
	// Table is needed by New, and by FromEnv not used.
	Table  string
	Region string
	// Credentials are those that the program has; by default those of the environment, of a profile, or of
	// the role. It is asked at the first request, and again before they end, in a goroutine of its own. A
	// request waits for it for 5 s; the context ends after 30 s. With an aws.Config of aws-sdk-go-v2:
	//
	//	func(ctx context.Context) (sluice.Credentials, error) {
	//		found, err := config.Credentials.Retrieve(ctx)
	//		return sluice.Credentials{
	//			AccessKeyID: found.AccessKeyID, SecretAccessKey: found.SecretAccessKey,
	//			SessionToken: found.SessionToken, Expires: found.Expires,
	//		}, err
	//	}
	Credentials     func(context.Context) (Credentials, error)
	Endpoint        string
	LeaseTTL        time.Duration
	MaxRetries      *int
	AttemptTimeout  time.Duration
	AnswerWithin    time.Duration
	MaxWait         time.Duration
	RenewLeases     *bool
	Mode            string // enforce or shadow
	Leases          string // concurrent, all or inline
	OnUnavailable   string // error, allow, share or share:FACTOR
	Admission       string // off, shadow or enforce
	Staleness       time.Duration
	SelfHeal        *bool
	HealBudget      *int
	CapDebt         *bool
	MaxBuckets      *int
	LongestCoolDown time.Duration
	Caller          string
	Share           string   // of buckets, that pays; common is the part that no share has
	WarnAt          *float64 // 0 for no warnings
	NoteUse         *bool
	Prefetch        []string
	Vendors         []string // profiles in TOML
}

// New makes a client of a table. It makes no request.
func New(_ context.Context, config Config) (*Client, error) {
	if config.Table == "" {
		return nil, &Error{Class: "ConfigError", Message: "Config.Table is empty: name the table, or use FromEnv"}
	}
	return newClient(config)
}

// FromEnv makes a client with the settings of the SLUICE_* variables and, unless a config has credentials,
// those of the environment. It makes no request. What a config names wins over its variable.
func FromEnv(_ context.Context, config ...Config) (*Client, error) {
	var of Config
	if len(config) > 0 {
		of = config[0]
	}
	of.Table = ""
	return newClient(of)
}

func newClient(of Config) (*Client, error) {
	settings := map[string]any{}
	set(settings, "table", text(of.Table))
	set(settings, "region", text(of.Region))
	set(settings, "endpoint", text(of.Endpoint))
	set(settings, "leaseTtlMs", optional(of.LeaseTTL))
	set(settings, "maxRetries", of.MaxRetries)
	set(settings, "attemptTimeoutMs", optional(of.AttemptTimeout))
	set(settings, "answerWithinMs", optional(of.AnswerWithin))
	set(settings, "maxWaitMs", optional(of.MaxWait))
	set(settings, "renewLeases", of.RenewLeases)
	set(settings, "mode", text(of.Mode))
	set(settings, "leases", text(of.Leases))
	set(settings, "onUnavailable", text(of.OnUnavailable))
	set(settings, "admission", text(of.Admission))
	set(settings, "stalenessMs", optional(of.Staleness))
	set(settings, "selfHeal", of.SelfHeal)
	set(settings, "healBudget", of.HealBudget)
	set(settings, "capDebt", of.CapDebt)
	set(settings, "maxBuckets", of.MaxBuckets)
	set(settings, "longestCoolDownMs", optional(of.LongestCoolDown))
	set(settings, "caller", text(caller(of.Caller)))
	set(settings, "share", text(of.Share))
	set(settings, "warnAt", of.WarnAt)
	set(settings, "noteUse", of.NoteUse)
	if of.Prefetch != nil {
		settings["prefetch"] = of.Prefetch
	}
	if of.Vendors != nil {
		settings["vendors"] = of.Vendors
	}
	made, err := connect(settings, of.Credentials)
	if err != nil {
		return nil, inConfig(err)
	}
	return &Client{made}, nil
}

var (
	ofSetting  = regexp.MustCompile(`^(\w+?)(Ms)?( = |: )`)
	inMillis   = regexp.MustCompile(`( = | at least )([\d.]+)`)
	typeConfig = reflect.TypeFor[Config]()
)

// inConfig names the setting of an error as Config does: LeaseTTL = 1ms, where the library has leaseTtlMs = 1.
func inConfig(err error) error {
	told, is := err.(*Error)
	if !is {
		return err
	}
	found := ofSetting.FindStringSubmatch(told.Message)
	if found == nil {
		return err
	}
	field, is := typeConfig.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, found[1]) })
	if !is {
		return err
	}
	rest := told.Message[len(found[1])+len(found[2]):]
	if found[2] != "" {
		rest = inMillis.ReplaceAllStringFunc(rest, func(text string) string {
			of := inMillis.FindStringSubmatch(text)
			ms, _ := strconv.ParseFloat(of[2], 64)
			return of[1] + duration(ms).String()
		})
	}
	told.Message = "Config." + field.Name + rest
	return told
}

func set[T any](settings map[string]any, name string, value *T) {
	if value != nil {
		settings[name] = *value
	}
}

func text(of string) *string {
	if of == "" {
		return nil
	}
	return &of
}

// caller is the name that leases state as their holder.
func caller(given string) string {
	if given != "" || os.Getenv("SLUICE_CALLER") != "" || os.Getenv("AWS_LAMBDA_FUNCTION_NAME") != "" {
		return given
	}
	return filepath.Base(os.Args[0])
}
