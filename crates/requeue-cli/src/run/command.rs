//! `requeue run` and `requeue work`: connects the parts, and handles the end.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use requeue::Worker;
use requeue_watch::Watcher;

use crate::config::{Engine, Form, Output, Run};
use crate::input::keys::End;
use crate::input::line::Format;
use crate::input::loops::Loops;
use crate::input::watch;
use crate::output::console::{Console, Stream};
use crate::output::orphan_output::OrphanOutput;
use crate::report::files::{self, Files};
use crate::report::joblog::Resume;
use crate::report::log::Log;
use crate::report::metrics::Exports;
use crate::report::progress::{self, InQueue, Keys};
use crate::report::run_stats::RunStats;
use crate::report::summary::Summary;
use crate::run::child::{Lease, Supervisor};
use crate::run::dry_run;
use crate::run::feed;
use crate::run::intake::Intake;
use crate::run::listen::Listening;
use crate::run::process_slots::ProcessSlots;
use crate::run::queue::{self, Retries};
use crate::run::reaper::Reaper;
use crate::run::signals::{self, First, Listener};
use crate::run::state::{self, Opened};
use crate::run::template::Template;
use crate::run::worker::{self, App};
use crate::system::control::{Control, Level};
use crate::system::exit::{CLOSED, USAGE, refuse};
use crate::system::limits;
use crate::system::lookup::{self, NoProgram};
use crate::system::stdio_check;

/// Runs `requeue run`. Returns the exit status.
pub(crate) fn run(config: Run) -> u8 {
    let reads = if config.lines.are_read { stdio_check::has_input() } else { Ok(()) };
    if let Err(why) = reads.and_then(|()| stdio_check::has_output()) {
        return refuse(USAGE, why);
    }
    let (file, template_args) = match program(&config) {
        Ok(found) => found,
        Err(NoProgram::NotFound(why)) => return refuse(127, &why),
        Err(NoProgram::CannotExecute(why)) => return refuse(126, &why),
    };
    if let Err(e) = signals::keep_exit_statuses() {
        return refuse(1, &e.to_string());
    }
    let template = Template::new(file, config.program[0].clone(), template_args);
    let template =
        if config.watch.as_ref().is_some_and(|watch| watch.one) { template.without_key() } else { template };
    let watcher = match config.watch.as_ref().map(watch::watcher).transpose() {
        Ok(watcher) => watcher,
        Err(e) => return refuse(watch::refusal(&e), &watch::complaint(&e)),
    };
    let resume = match files::resume(&config.files) {
        Ok(resume) => resume,
        Err(why) => return refuse(USAGE, &why),
    };
    if config.dry_run {
        return dry_run::print(&template, &config, resume, watcher);
    }
    let files = match Files::open(&config.files) {
        Ok(files) => files,
        Err(why) => return refuse(USAGE, &why),
    };
    let is_told = config.listen.is_some() || config.files.metrics_to.is_some();
    let exports = match is_told.then(|| Exports::new(&config.metrics_name)).transpose() {
        Ok(exports) => exports.map(Arc::new),
        Err(why) => return refuse(1, &why),
    };
    let listening =
        config.listen.zip(exports.clone()).map(|(address, exports)| Listening::at(address, exports));
    let listening = match listening.transpose() {
        Ok(listening) => listening,
        Err(why) => return refuse(USAGE, &format!("--listen {why}")),
    };
    let sink = exports.as_ref().map(|exports: &Arc<Exports>| Arc::clone(&exports.sink));
    let opened = match state::open(&config, sink) {
        Ok(opened) => opened,
        Err((status, why)) => return refuse(status, &why),
    };
    let sources = Sources { watcher, resume };
    match control(config, template, sources, opened, files, (exports, listening)) {
        Ok(status) => status,
        Err(e) => refuse(1, &e.to_string()),
    }
}

fn program(config: &Run) -> Result<(PathBuf, Vec<std::ffi::OsString>), NoProgram> {
    let path = std::env::var_os("PATH");
    let file = lookup::find(&config.program[0], path.as_deref())?;
    Ok((file, config.program[1..].to_vec()))
}

/// The sources of keys.
struct Sources {
    watcher: Option<Watcher>,
    resume: Resume,
}

fn control(
    config: Run,
    template: Template,
    sources: Sources,
    (queue, state): Opened,
    files: Files,
    (exports, listening): (Option<Arc<Exports>>, Option<Listening>),
) -> io::Result<u8> {
    let Sources { watcher, resume } = sources;
    let began = Instant::now();
    limits::raise_for(config.workers, config.listen.is_some());
    limits::check().map_err(io::Error::other)?;
    let sink = exports.as_ref().map(|exports| Arc::clone(&exports.sink));
    let intake = Arc::new(Intake::new(queue.clone(), state.clone(), &config));
    let shutter = Arc::clone(&intake);
    let first_ends = match config.durable.as_ref().map(|durable| &durable.engine) {
        None => First::Input,
        Some(Engine::File(_)) => First::Runs,
        Some(Engine::Server(_)) => First::Claims,
    };
    // Empty when it has ended: it has a handle of the queue, and the last one to drop closes the file.
    let started: Arc<Mutex<Option<Arc<Worker>>>> = Arc::default();
    let (workers, in_file) = (Arc::clone(&started), first_ends == First::Runs);
    let control = Arc::new(Control::new(move |level| {
        if in_file && level >= Level::LastRuns {
            // First: what is ready stays in the file, however much it is.
            if let Some(worker) = &*workers.lock().unwrap_or_else(PoisonError::into_inner) {
                drop(worker.stop(Duration::MAX));
            }
            // Waiting keys go on waiting: this signal drops nothing.
            if level == Level::LastRuns {
                return shutter.close();
            }
        }
        shutter.shut_down(level >= Level::LastRuns);
    })?);
    let console = Arc::new(Console::new(Arc::clone(&control)));
    let log = Arc::new(Log::new(config.log, Arc::clone(&console), config.ends.max_attempts));
    let signals = Listener::new(Arc::clone(&control), Arc::clone(&log), first_ends)?;
    let lease = config.durable.as_ref().and_then(|durable| durable.lease).map(Lease::new);
    let reaper = state.as_ref().and_then(|state| {
        let grace = lease.map_or(config.grace, |lease| lease.grace(config.grace));
        let reaper = state.lock().and_then(|lock| Reaper::start(grace, lock));
        let why = |e| log.note(&format!("if this process is killed its programs go on: {e}"));
        reaper.map_err(why).ok()
    });
    let app = Arc::new(App {
        queue: queue.clone(),
        state,
        supervisor: Supervisor {
            timeout: config.ends.timeout,
            grace: config.grace,
            lease,
            control: Arc::clone(&control),
            console: Arc::clone(&console),
            log: Arc::clone(&log),
            orphan_output: OrphanOutput::new(Arc::clone(&console)),
            process_slots: ProcessSlots::default(),
            reaper,
            groups: config.output == Output::Grouped,
            order: intake.order.clone(),
            by_shell: AtomicBool::new(false),
            started: AtomicBool::new(false),
        },
        template,
        format: Format::new(&config.lines),
        run_stats: if config.works() {
            RunStats::of_an_engine(config.files.failed_to.is_some())
        } else {
            RunStats::default()
        },
        log: Arc::clone(&log),
        sink,
        intake,
        files,
        loops: watcher
            .as_ref()
            .map(|_| Loops::new(config.queue.debounce.map_or(Duration::ZERO, |(quiet, _)| quiet))),
        unusable: Mutex::new(None),
        faulty: AtomicBool::new(false),
        config,
    });
    let server = match listening {
        None => None,
        Some(listening) => {
            if let Some(address) = listening.chosen(app.config.listen) {
                log.note(&format!("listening on http://{address}"));
            }
            Some(listening.serve(&queue)?)
        }
    };
    if resume.unreadable > 0 {
        let lines =
            if resume.unreadable == 1 { "1 line is" } else { &format!("{} lines are", resume.unreadable) };
        log.note(&format!("--joblog: {lines} no row, and passed over"));
    }
    if let Some(found) = app.state.as_ref().and_then(|state| state.found()) {
        log.note(&found);
    }
    let watched = app.config.progress && rustix::termios::isatty(rustix::stdio::stderr());
    let keys = Keys {
        typed: app.config.lines.are_read && rustix::termios::isatty(rustix::stdio::stdin()),
        on_server: app.config.is_on_server(),
        ended: AtomicBool::new(false),
    };
    let (end_progress, progress_ends) = mpsc::channel();
    let (input, read_error) = std::thread::scope(|scope| {
        if watched {
            let in_queue = || {
                let stats = queue.stats();
                InQueue { ready: stats.ready, waiting: stats.waiting, held: stats.held }
            };
            let (console, run_stats, keys) = (&console, &app.run_stats, &keys);
            let draw = move || progress::draw(console, run_stats, keys, in_queue, &progress_ends);
            // Where there is no thread for it the work is done without.
            let _ = std::thread::Builder::new().spawn_scoped(scope, draw);
        }
        let wanted = app.config.workers;
        let (workers, scarce) = limits::with_room(wanted);
        if workers < wanted {
            log.note(&format!("{scarce}: it goes on as with -j {workers}"));
        }
        let worker = match worker::start(&app, workers) {
            Ok(worker) => Arc::new(worker),
            Err(e) => {
                control.raise(Level::Stop);
                drop(end_progress);
                return (End::Stopped, Some(limits::no_thread(&e)));
            }
        };
        *started.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&worker));
        if in_file && control.reached(Level::LastRuns) {
            drop(worker.stop(Duration::MAX));
        }
        let read = || if app.config.works() { (End::Input, None) } else { feed::read(&app, resume) };
        let (input, error) = match watcher {
            None => read(),
            Some(watcher) => feed::watch(&app, watcher, read),
        };
        if app.config.stays() && input == End::Input && error.is_none() {
            if let Some(state) = &app.state {
                state.stay(&control, &log);
            }
        }
        keys.ended.store(true, Ordering::Relaxed);
        see_off(&app, &worker);
        worker.join();
        *started.lock().unwrap_or_else(PoisonError::into_inner) = None;
        queue.shut_down();
        drop(end_progress);
        let fault = app.faulty.load(Ordering::Relaxed).then(|| io::Error::other("a worker failed"));
        (input, error.or(fault))
    });
    let output_lost = app.supervisor.order.as_ref().is_some_and(|order| order.finish(&console));
    app.supervisor.orphan_output.end();
    signals.messages_said();
    drop(server);
    let ending = Ending { input, read_error, signal: signals.first(), output_lost, took: began.elapsed() };
    let status = report(&app, &ending, exports.as_deref());
    // Only now: somebody may want to interrupt the last words, too.
    drop(signals);
    Ok(status)
}

/// Waits until everything is worked off, or may be left.
fn see_off(app: &App, worker: &Worker) {
    let (control, queue) = (&app.supervisor.control, &app.queue);
    let limit = app.config.drain_timeout;
    let mut retries = Retries::WorkOff;
    if let Some(state) = &app.state {
        if !state.work_off(control, limit) {
            out_of_time(app, limit);
        }
        if !app.config.is_on_server() {
            // Keys that come from here on stay in the file, and so do waiting ones.
            drop(worker.stop(Duration::MAX));
            // A signal has a time of its own.
            if control.reached(Level::WorkOff) && !state.runs_end(control, limit) {
                out_of_time(app, limit);
            }
            return;
        }
        // Its own waiting keys may be due next year. Those it has waited for already that wait for a retry.
        retries = Retries::Drop;
    }
    let drain = control.before_the_end(|| queue::drain(queue, retries, limit));
    let complete = drain.is_some_and(|drain| queue::nothing_is_left(&drain.wait()));
    if !complete && control.reached(Level::WorkOff) {
        // A signal has a time of its own, also when it came during the wait above.
        if limit.is_some() && !queue::nothing_is_left(&queue::drain(queue, Retries::Drop, limit).wait()) {
            out_of_time(app, limit);
        }
    } else if !complete {
        out_of_time(app, limit);
    }
}

fn out_of_time(app: &App, limit: Option<Duration>) {
    if !app.supervisor.control.reached(Level::Stop) {
        // First: where standard error is not read a message waits, and the programs must not.
        app.supervisor.control.raise(Level::Stop);
        let limit = crate::text::duration::show(limit.unwrap_or_default());
        app.log.note(&format!("--drain-timeout {limit} is over: stopping what runs"));
    }
}

struct Ending {
    input: End,
    read_error: Option<io::Error>,
    signal: Option<i32>,
    /// Output of --keep-order was lost.
    output_lost: bool,
    took: Duration,
}

/// Prints the final messages. Returns the exit status.
fn report(app: &App, ending: &Ending, exports: Option<&Exports>) -> u8 {
    let console = &app.supervisor.console;
    let complain = |what: &str| console.line(&format!("requeue: {what}"));
    for (key, payload) in app.intake.set_aside() {
        app.run_stats.owe_values(&key, payload);
    }
    let (gave_up, left) = app.run_stats.take_fates();
    let mut trouble = Vec::new();
    if let Some(e) = &ending.read_error {
        trouble.push(e.to_string());
    }
    if let Some(e) = console.take_failure() {
        trouble.push(format!("standard output: {e}"));
    }
    if ending.output_lost && !console.closed() {
        trouble.push("--keep-order: output of runs that have ended is lost".to_owned());
    }
    let in_file = app.state.as_ref().map(|state| {
        let (left, finished) = state.finish();
        trouble.extend(finished.err());
        left
    });
    let unwritten = app.files.finish((&app.config.files, &app.config.lines), &gave_up, &left, exports);
    let failed_to_lacks = unwritten.iter().any(|(option, _)| *option == "--failed-to");
    trouble.extend(unwritten.into_iter().map(|(_, what)| what));
    for what in &trouble {
        complain(what);
    }
    let unusable = app.unusable.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((status, e)) = unusable {
        let name = crate::text::show::key(app.template.file.as_os_str().as_encoded_bytes());
        complain(&format!("{name}: cannot be executed: {e}"));
        return status;
    }
    // those of the file wait for their next run as well that this process never saw
    let left = in_file.and_then(|left| usize::try_from(left).ok()).unwrap_or(left.len());
    let unread = ending.input == End::Stopped;
    // Keys left in a file are for the next command. They count as undone work of this one if it was to work
    // all of them off, or had to stop programs.
    let end = if app.config.stays() { Level::Stop } else { Level::LastRuns };
    let owes = left > 0 && (app.state.is_none() || app.supervisor.control.reached(end));
    let beyond = app.run_stats.gave_up_beyond();
    let mut status = u8::from(!gave_up.is_empty() || beyond > 0 || owes || unread);
    if let Some(signal) = ending.signal.filter(|_| owes || unread) {
        status = 128 + u8::try_from(signal).unwrap_or(0);
    }
    if !trouble.is_empty() && status == 0 {
        status = 1;
    }
    // The output is no longer read: nothing more is said.
    if console.closed() {
        return CLOSED;
    }
    let form = app.config.summary;
    if form != Form::Off {
        let summary = Summary {
            run_stats: &app.run_stats,
            works: app.config.works(),
            on_server: app.config.is_on_server(),
            gave_up: &gave_up,
            beyond,
            failed_to_lacks,
            left,
            unread,
            took: ending.took,
            status,
        };
        console.write(Stream::Err, summary.render(form).as_bytes(), &mut ());
    }
    status
}
