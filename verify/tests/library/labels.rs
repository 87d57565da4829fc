//! M: constant labels.

use requeue::{BuildError, Gauges, Metrics, WorkQueue};
use std::sync::{Arc, Mutex};

/// Calls to a sink, in order.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Metrics for Told {
    fn attach(
        &self,
        name: &str,
        labels: &[(String, String)],
        _: Arc<dyn Fn() -> Option<Gauges> + Send + Sync>,
    ) {
        self.0.lock().unwrap().push(format!("{name} {labels:?}"));
    }
}

#[test]
fn m_constant_labels_are_told_once_with_the_gauges() {
    let told = Arc::new(Told::default());
    let builder = WorkQueue::<u64>::builder().name("q").metrics(Arc::clone(&told));
    let q = builder.label("b", "2").label("_a1", "").hasher(requeue::RandomState::default()).build();
    assert_eq!(*told.0.lock().unwrap(), [r#"q [("b", "2"), ("_a1", "")]"#]);
    drop(q);
    let told = Arc::new(Told::default());
    let q = WorkQueue::<u64>::builder().name("q").metrics(Arc::clone(&told)).build();
    assert_eq!(*told.0.lock().unwrap(), ["q []"]);
    drop(q);
}

#[test]
fn m_labels_that_cannot_be_are_refused_when_the_queue_is_built() {
    let build = |labels: &[&str]| {
        let builder = WorkQueue::<u64>::builder();
        labels.iter().fold(builder, |builder, label| builder.label(*label, "x")).build().map(drop)
    };
    for good in ["a", "_", "_a", "A_9", "names", "a__b"] {
        assert_eq!(build(&[good]), Ok(()), "{good}");
    }
    for name in ["", "9a", "a-b", "a b", "a.b", "é", "__a", "a\n"] {
        let error = build(&["ok", name]).expect_err(name);
        assert_eq!(error, BuildError::LabelName { name: name.to_owned() });
        let said = error.to_string();
        assert!(said.starts_with(&format!("invalid label name {name:?}: use ASCII letters")), "{said}");
    }
    for labels in [
        ["a", "a"],
        ["a", "name"],
        ["le", "a"],
        ["quantile", "a"],
        ["a", "outcome"],
        ["priority", "a"],
        ["group", "a"],
    ] {
        let error = build(&labels).expect_err("taken");
        assert!(matches!(&error, BuildError::LabelTaken { name } if labels.contains(&&**name)), "{error:?}");
        assert!(error.to_string().contains("duplicate label"), "{error}");
    }
}
