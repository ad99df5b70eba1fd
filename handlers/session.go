package handlers

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/mailstead/mailstead/handlers/api"
	"github.com/mailstead/mailstead/service/accounts"
	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/code"
	"github.com/mailstead/mailstead/service/signin"
)

// The paths below /session are what the dashboard needs besides the API: signing in and out, the
// user's own profile, and operations that only a browser uses. They are authenticated by a cookie
// and not part of the public API.

// anonymousPerMinute is how many requests one address may send to the dashboard in a minute without
// being signed in.
const anonymousPerMinute = 120

// A sessionRoute is one operation below /session. Only routes that show data of the account have a
// scope.
type sessionRoute struct {
	api.Operation
	anonymous bool        // works without signing in
	optional  bool        // for anonymous routes: c.who is set if a user is signed in
	tokens    bool        // accepts API tokens too
	raw       func(*call) // writes the response itself; used instead of Operation.Call
}

// sessionHandler returns the handler of one path below /session, with its routes by method. It
// checks the origin and the user, reads the body, calls the service and answers.
func (s *Server) sessionHandler(routes map[string]*sessionRoute) func(*call) {
	return func(c *call) {
		setSessionHeaders(c.w.Header())
		row := routes[c.r.Method]
		if row == nil {
			s.sendNotAllowed(c, slices.Collect(maps.Keys(routes)))
			return
		}
		c.op = &row.Operation
		if err := s.authorizeSession(c, row); err != nil {
			s.sendError(c, err)
			return
		}
		if row.raw != nil {
			if err := s.checkTaint(c, nil); err != nil {
				s.sendError(c, err)
				return
			}
			row.raw(c)
			return
		}
		body, done, err := s.bodies.read(c)
		if err != nil {
			s.sendError(c, err)
			return
		}
		defer done()
		s.answer(c, c.r.PathValue, body)
	}
}

// sessionPathNotFound answers requests to unknown paths below /session.
func (s *Server) sessionPathNotFound(c *call) {
	setSessionHeaders(c.w.Header())
	s.sendError(c, core.Errorf("not_found", "There is no %s %s.", c.r.Method, c.r.URL.Path))
}

func setSessionHeaders(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
}

// authorizeSession returns an error if the request may not use the route. It accepts signed-in
// users, and on anonymous routes a limited number of other requests.
func (s *Server) authorizeSession(c *call, row *sessionRoute) error {
	if err := checkSameOrigin(c.r); err != nil {
		return err
	}
	if row.optional && s.sessionCookie(c.r) != "" {
		if who, err := s.svc.Signin.AuthenticateSession(c.r.Context(), s.sessionCookie(c.r), remoteAddr(c.r)); err == nil {
			c.who = who
			return s.countCall(c)
		}
	}
	if row.anonymous {
		return s.limitAnonymous(c)
	}
	if s.sessionCookie(c.r) == "" && !row.tokens {
		return core.Errorf("unauthorized", "You are not signed in.")
	}
	if err := s.authenticate(c); err != nil {
		return err
	}
	if c.who.TokenKind != "session" && !row.tokens {
		return core.Errorf("unauthorized", "API tokens are for /v1. Sign in instead, and send no Authorization header.")
	}
	if err := s.countCall(c); err != nil {
		return err
	}
	if row.Scope == "" {
		return row.CheckLinked(c.who, row.Name)
	}
	return row.Permit(c.who)
}

// limitAnonymous returns an error for a request without a session if its address sends too many, or
// if it came without TLS where signing in needs it.
func (s *Server) limitAnonymous(c *call) error {
	addr, now := remoteAddr(c.r), s.now()
	if sessionCookieName(c.r, s.svc.Core.Config.Sandbox) == "" {
		return core.Errorf("https_required", "Signing in needs HTTPS. Open %s/ instead.", s.svc.Core.Config.BaseURL)
	}
	if err := s.badTokens.check(addr, now); err != nil {
		return err
	}
	if s.anonymousRate.add(addr, now) > anonymousPerMinute {
		return rateLimited(now, "Too many requests came from %s. Wait for the next minute.", addr)
	}
	return nil
}

// setCookie sets the session cookie in the browser. It removes the cookie if value is "".
func (s *Server) setCookie(c *call, value string) {
	cookie := &http.Cookie{
		Name: sessionCookieName(c.r, s.svc.Core.Config.Sandbox), Value: value, Path: "/", HttpOnly: true, Secure: isSecure(c.r),
		SameSite: http.SameSiteStrictMode, MaxAge: int(accounts.SessionLife / time.Second),
	}
	if value == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(c.w, cookie)
}

// visitorOf describes the client of the request to the rules of signing in.
func (s *Server) visitorOf(c *call) signin.Visitor {
	return signin.Visitor{IP: remoteAddr(c.r), UserAgent: c.r.UserAgent(), RequestID: c.id, Session: s.sessionCookie(c.r)}
}

// setSession sets the cookie of a new session and returns the session.
func (s *Server) setSession(c *call, in *signin.SignedIn) *signin.Session {
	s.setCookie(c, in.Cookie)
	return &in.Session
}

// CurrentSession is the session of the browser that sent the request. Session is nil if nobody is
// signed in.
type CurrentSession struct {
	Session *signin.Session `json:"session"`
}

func (s *Server) currentSession(ctx context.Context, who core.Actor) (*CurrentSession, error) {
	if who.TokenID == "" {
		return &CurrentSession{}, nil
	}
	session, err := s.svc.Signin.GetSession(ctx, who)
	return &CurrentSession{session}, err
}

// logRefusal logs that a sign-in was refused, and returns err. It does not log internal errors,
// which are logged elsewhere.
func (s *Server) logRefusal(c *call, who string, err error) error {
	e := core.Explain(err)
	if code.Status(e.Code) < http.StatusInternalServerError {
		s.Log.Info("sign-in refused", "request_id", c.id, "ip", remoteAddr(c.r), "email", core.LoginName(who), "code", e.Code)
	}
	return err
}

func (s *Server) signIn(ctx context.Context, _ core.Actor, in signin.SignInIn) (*signin.Session, error) {
	c := callOf(ctx)
	out, err := s.svc.Signin.SignIn(ctx, s.visitorOf(c), in)
	s.svc.Core.Metrics.CountLogin("dashboard", err)
	if err != nil {
		return nil, s.logRefusal(c, in.Email, err)
	}
	return s.setSession(c, out), nil
}

func (s *Server) signOut(ctx context.Context, who core.Actor, in signin.SignOutIn) (*signin.Message, error) {
	out, err := s.svc.Signin.SignOut(ctx, who, in)
	if err == nil {
		s.setCookie(callOf(ctx), "")
	}
	return out, err
}

func (s *Server) checkWelcome(ctx context.Context, who core.Actor, in signin.LinkIn) (*signin.Welcome, error) {
	out, err := s.svc.Signin.CheckWelcome(ctx, who, in)
	if err != nil {
		s.countBadLink(remoteAddr(callOf(ctx).r), err)
	}
	return out, err
}

func (s *Server) completeWelcome(ctx context.Context, _ core.Actor, in signin.WelcomeIn) (*signin.Session, error) {
	c := callOf(ctx)
	out, err := s.svc.Signin.CompleteWelcome(ctx, s.visitorOf(c), in)
	if err != nil {
		s.countBadLink(remoteAddr(c.r), err)
		return nil, s.logRefusal(c, "", err)
	}
	return s.setSession(c, out), nil
}

func (s *Server) forgotPassword(ctx context.Context, _ core.Actor, in signin.ForgotIn) (*signin.Message, error) {
	return s.svc.Signin.ForgotPassword(ctx, s.visitorOf(callOf(ctx)), in)
}

func (s *Server) recoverMailbox(ctx context.Context, _ core.Actor, in signin.ForgotIn) (*signin.Message, error) {
	return s.svc.Signin.RecoverMailbox(ctx, s.visitorOf(callOf(ctx)), in)
}

func (s *Server) confirmRecovery(ctx context.Context, _ core.Actor, in signin.RecoveryIn) (*signin.RecoveryConfirmed, error) {
	out, err := s.svc.Signin.ConfirmRecovery(ctx, in)
	if err != nil {
		s.countBadLink(remoteAddr(callOf(ctx).r), err)
	}
	return out, err
}

func (s *Server) startPasskey(ctx context.Context, who core.Actor, in signin.PasswordIn) (any, error) {
	return s.svc.Signin.StartPasskey(ctx, who, pageOrigin(callOf(ctx).r), in)
}

func (s *Server) addPasskey(ctx context.Context, who core.Actor, in signin.NewPasskeyIn) (*signin.Session, error) {
	return s.svc.Signin.AddPasskey(ctx, who, pageOrigin(callOf(ctx).r), in)
}

func (s *Server) offerPasskey(ctx context.Context, _ core.Actor) (any, error) {
	return s.svc.Signin.OfferPasskey(ctx, pageOrigin(callOf(ctx).r))
}

func (s *Server) usePasskey(ctx context.Context, _ core.Actor, in signin.UsePasskeyIn) (*signin.Session, error) {
	c := callOf(ctx)
	out, err := s.svc.Signin.UsePasskey(ctx, s.visitorOf(c), pageOrigin(c.r), in)
	if err != nil {
		return nil, s.logRefusal(c, "", err)
	}
	return s.setSession(c, out), nil
}
