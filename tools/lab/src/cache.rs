//! What has been fetched, kept for the user's next laboratories:
//!
//! ```text
//! hither-lab/lock            held by whoever fetches
//!            packages/       as they were downloaded
//!            image-<key>/    lock (shared by who uses it), vmlinux, modules/, tree/
//!            new-...         an image in the making
//! ```
//!
//! An image appears whole, by one rename, and never changes. Its key names what it is made of.

use crate::error::{Error, Result};
use crate::tree::Tree;
use crate::{kernel, modules, packages, process};
use rustix::fs::FlockOperation;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Counts the ways in which images were made.
const FORM: u32 = 1;
/// Images of other versions of the laboratory go when nobody has used them for so long.
const STALE: Duration = Duration::from_secs(14 * 24 * 3600);

/// Packages, unpacked, and the kernel. It stays as long as this lives.
pub(crate) struct Image {
    directory: PathBuf,
    _in_use: File,
}

impl Image {
    /// The image; fetched and made first if it is not there, which takes half a minute and is told
    /// by `tell`. Waits while another process does that.
    pub fn get(tell: &dyn Fn(&str)) -> Result<Image> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            let why = "its guests are x86-64 machines with Linux, and run on such";
            return Err(Error::Unavailable(why.into()));
        }
        let cache = directory()?;
        std::fs::create_dir_all(&cache).map_err(|e| {
            Error::Unavailable(format!("{}, where packages are kept: {e}", cache.display()))
        })?;
        let home = cache.join(format!("image-{}", key()));
        if let Some(image) = Image::open(&home)? {
            return Ok(image);
        }
        let lock = locked(&cache.join("lock"), FlockOperation::LockExclusive)?;
        if let Some(image) = Image::open(&home)? {
            return Ok(image);
        }
        tell("fetching Debian's kernel, its emulator and RDMA programs, once");
        sweep(&cache);
        let made = tempfile::Builder::new().prefix("new-").tempdir_in(&cache);
        let made = made.map_err(|e| Error::file(&cache, e))?;
        make(&cache.join("packages"), made.path())?;
        std::fs::rename(made.keep(), &home).map_err(|e| Error::file(&home, e))?;
        drop(lock);
        Image::open(&home)?.ok_or_else(|| Error::Failed("the image has vanished".into()))
    }

    fn open(home: &Path) -> Result<Option<Image>> {
        if !home.exists() {
            return Ok(None);
        }
        let in_use = locked(&home.join("lock"), FlockOperation::LockShared)?;
        // For those who sweep; nothing depends on it.
        let _ = in_use.set_modified(SystemTime::now());
        Ok(Some(Image { directory: home.to_owned(), _in_use: in_use }))
    }

    pub fn kernel(&self) -> PathBuf {
        self.directory.join("vmlinux")
    }

    /// Modules for the guests, under their names in `order` there.
    pub fn modules(&self) -> PathBuf {
        self.directory.join("modules")
    }

    pub fn tree(&self) -> Tree {
        Tree(self.directory.join("tree"))
    }
}

/// Fetches what guests are made of, unless it is there; says by `tell` what takes long.
/// [`Error::Unavailable`] if it is not to be had.
pub fn fetch(tell: &dyn Fn(&str)) -> Result<()> {
    Image::get(tell).map(drop)
}

/// Of the user's cache.
fn directory() -> Result<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|p| p.join(".cache")));
    cache.map(|cache| cache.join("hither-lab")).ok_or_else(|| {
        Error::Unavailable("neither XDG_CACHE_HOME nor HOME says where packages may be kept".into())
    })
}

fn key() -> String {
    let mut hasher = DefaultHasher::new();
    (FORM, packages::WANTED, modules::WANTED).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn locked(path: &Path, how: FlockOperation) -> Result<File> {
    let open = File::options().create(true).truncate(false).write(true).open(path);
    let file = open.map_err(|e| Error::file(path, e))?;
    rustix::io::retry_on_intr(|| rustix::fs::flock(&file, how))
        .map_err(|e| Error::file(path, e))?;
    Ok(file)
}

/// Removes what processes left that were killed while they fetched, and images that nobody uses.
/// The lock is held.
fn sweep(cache: &Path) {
    for entry in std::fs::read_dir(cache).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        let unused = || {
            let lock = File::options().write(true).open(path.join("lock")).ok()?;
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).ok()?;
            lock.metadata().ok()?.modified().ok()?.elapsed().ok().filter(|age| *age > STALE)
        };
        if name.starts_with("new-") || (name.starts_with("image-") && unused().is_some()) {
            // Whatever cannot be removed is tried again next time.
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

/// Makes an image in the empty directory `home`.
fn make(store: &Path, home: &Path) -> Result<()> {
    let scratch = tempfile::Builder::new().prefix("scratch-").tempdir_in(home);
    let scratch = scratch.map_err(|e| Error::file(home, e))?;
    let (tree, kernel) = (Tree(home.join("tree")), scratch.path().join("kernel"));
    packages::fetch(store, scratch.path(), &tree.0, &kernel)?;
    let all_modules = kernel.join("lib/modules");
    let version = only_entry(&all_modules)?;
    kernel::unpack(
        &kernel.join("boot").join(format!("vmlinuz-{version}")),
        &tree,
        &home.join("vmlinux"),
    )?;

    let mut depmod = tree.command("bin/kmod", "depmod")?;
    process::output(depmod.arg("-b").arg(&kernel).arg(&version))?;
    let from = all_modules.join(&version);
    let text = |name: &str| {
        let path = from.join(name);
        std::fs::read_to_string(&path).map_err(|e| Error::file(&path, e))
    };
    let order =
        modules::in_order(modules::WANTED, &text("modules.dep")?, &text("modules.builtin")?)?;
    let to = home.join("modules");
    std::fs::create_dir(&to).map_err(|e| Error::file(&to, e))?;
    let mut names = String::new();
    for path in order {
        let (path, file) = (from.join(&path), path.rsplit('/').next().unwrap_or(&path).to_owned());
        let (name, module) = match file.rsplit_once('.') {
            Some((name, "xz")) => (name, tree.filter("usr/bin/xz", &path)?),
            Some((name, "zst")) => (name, tree.filter("usr/bin/zstd", &path)?),
            _ => (&*file, std::fs::read(&path).map_err(|e| Error::file(&path, e))?),
        };
        std::fs::write(to.join(name), module).map_err(|e| Error::file(&to, e))?;
        names += &format!("{name}\n");
    }
    std::fs::write(to.join("order"), names).map_err(|e| Error::file(&to, e))?;
    std::fs::write(home.join("lock"), "").map_err(|e| Error::file(home, e))
}

/// The name of the one thing in `directory`.
fn only_entry(directory: &Path) -> Result<String> {
    let entries = std::fs::read_dir(directory).map_err(|e| Error::file(directory, e))?;
    let names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    match &names[..] {
        [name] => Ok(name.to_string_lossy().into_owned()),
        _ => Err(Error::Failed(format!("{}: not one kernel", directory.display()))),
    }
}
