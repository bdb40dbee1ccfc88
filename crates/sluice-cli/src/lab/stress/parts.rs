//! The history files of the processes, and the one history that is made of them.

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use sluice_history::{Event, Header, Verdict, Writer, check_files, merge};

use crate::failure::Failure;

/// A file for each process, beside the history. The files are deleted at the end.
pub(crate) struct Parts {
    history: PathBuf,
    files: Vec<PathBuf>,
}

impl Parts {
    /// Names the files, and checks now that the history can be written; its old contents stay until new
    /// contents replace them.
    pub(crate) fn beside(history: &Path, processes: u32) -> Result<Self, Failure> {
        File::options()
            .append(true)
            .create(true)
            .open(history)
            .map_err(|error| cannot_write(history, &error))?;
        let part = |n: u32| {
            let mut name = history.as_os_str().to_owned();
            name.push(format!(".part-{}", n + 1));
            PathBuf::from(name)
        };
        Ok(Self { history: history.to_owned(), files: (0..processes).map(part).collect() })
    }

    pub(crate) fn file(&self, n: u32) -> Option<&Path> {
        self.files.get(n as usize).map(PathBuf::as_path)
    }

    /// Merges the files into one history.
    pub(crate) fn merge(&self, limits: Vec<Event>) -> Result<(), Failure> {
        self.merge_all(limits).map_err(|error| cannot_write(&self.history, &error))
    }

    /// Judges the history. All processes run on this machine and read one clock, so no clock error is allowed
    /// for.
    pub(crate) fn judge(&self) -> Result<Verdict, Failure> {
        Ok(check_files(&[&self.history], 0)?)
    }

    fn merge_all(&self, limits: Vec<Event>) -> std::io::Result<()> {
        let mut out = Writer::new(File::create(&self.history)?, Header::new(0))?;
        limits.iter().try_for_each(|limit| out.write(limit))?;
        let parts = self.files.iter().map(|file| File::open(file).map(BufReader::new));
        merge(parts.collect::<std::io::Result<_>>()?, &mut out)?;
        out.finish()?;
        Ok(())
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        for file in &self.files {
            if let Err(error) = std::fs::remove_file(file)
                && error.kind() != ErrorKind::NotFound
            {
                eprintln!("{} cannot be removed: {error}", file.display());
            }
        }
    }
}

fn cannot_write(file: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{} cannot be written: {error}", file.display()))
}
